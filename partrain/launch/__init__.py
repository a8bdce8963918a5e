"""Running a job: the processes of a run, and the files it leaves.

The processes and their parts, in start order:

    run, resume             read job and data, start the forkserver, then run the coordinator (`partrain run`, `partrain resume`)
    rendezvous, follower    several machines under torchrun: machine 0 leads, the others lend their workers
    coordinator             one per machine: starts an attempt, handles messages, signals and stalls
    attempt                 the arena (shared memory) and its processes
    forkserver              imports torch once (`worker/preload`); worker processes are its children
    worker/                 the code inside those processes: `entry`, then `dry_run` or `process` over `setup` and `messages`
    checkpoint_writer       a child of the coordinator that turns snapshots into files

Parts of the coordinator and its run:

    processes               the worker processes, their pipes and exits     ready_check     all built the same network
    checkpointer            from slot to file                               snapshot_slots  slots: granted, filled or free
    round_records           the workers' records, read from the arena       stall_timer     time without a sign of life
    repeated_rounds         rounds that run again are compared
    signals                 Ctrl-C and similar signals                      context         folder, display and signals of a run
    start_event, outcome    the first and last lines of a run               manifest        the origin of its checkpoints
    run_folder              one process at a time in a folder               shared_dataset  the data set in a memory file
    control                 stop and commit requests of other processes     hook_process    feeds the events to other tools

A snapshot is a copy of the whole training state in one of four slots of the arena. The coordinator grants a free slot to the workers.
They fill it at the end of a round and offer it. The writer encodes and commits it: it writes the whole file, a checkpoint, to disk. The
coordinator then emits a `commit` event.
"""
