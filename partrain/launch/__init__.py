"""Running a job: the processes of a run, and the files it leaves.

The processes and their parts, in the order of their start:

    run, resume             read job and data, start the forkserver, then run the coordinator (`partrain run`, `partrain resume`)
    rendezvous, follower    several machines under torchrun: machine 0 leads, the others lend it their workers
    coordinator             one per machine: starts an attempt, handles messages, signals and stalls
    attempt                 the arena (shared memory) and the processes over it
    forkserver              imports torch once (`worker/preload`); worker processes are its children
    worker/                 the code inside those processes: `entry`, then `dry_run` or `process` over `setup` and `messages`
    checkpoint_writer       a child of the coordinator that turns snapshots into files

Parts of the coordinator and of the run around it:

    processes               the worker processes, their pipes and exits     ready_check     all have built the same network
    checkpointer            from slot to file                               snapshot_slots  which slot is granted, filled, free
    round_records           the workers' records, read from the arena       stall_timer     time without a sign of life
    signals                 Ctrl-C and its relatives                        context         folder, display and signals of a run
    start_event, outcome    the first and last lines of a run               manifest        the origin of its checkpoints
    run_folder              one process at a time in a folder               shared_dataset  the data set in a memory file
    control                 stop and commit, asked by another process       hook_process    feeds the events to other tools

A snapshot is a copy of the whole training state in one of four slots of the arena. The coordinator grants a free slot to the workers.
They fill it at the end of a round and offer it. The writer encodes it and commits it: the whole file is on disk, and a `commit` event
is emitted. The file is a checkpoint.
"""
