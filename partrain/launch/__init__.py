"""Running a job: the processes of a run, and the files it leaves.

The processes and their parts, in start order:

    run, folder/resume      read job and data, start the forkserver, then run the coordinator (`partrain run`, `partrain resume`)
    dry_run                 tries a job and ends (`partrain validate --build`)
    machines/               several machines under torchrun: machine 0 leads (`rendezvous`), the others lend their workers (`follower`)
    coordinator             one per machine: starts an attempt, handles messages, signals and stalls
    attempt                 the arena (shared memory) and its processes
    forkserver              imports torch once (`worker/preload`); worker processes are its children
    worker/                 the code inside those processes: `entry`, then `dry_run` or `process` over `setup` and `messages`
    checkpoint_writer       a child of the coordinator that turns snapshots into files

Parts of the coordinator and its run:

    processes               the worker processes, their pipes and exits     ready_check     all built the same network
    checkpointer            from slot to file                               snapshot_slots  slots: granted, filled or free
    round_records           the workers' records, read from the arena       stall_timer     time without a sign of life
    repeated_rounds         rounds that run again are compared              replay          all workers start again after a loss
    signals                 Ctrl-C and similar signals                      context         folder, display and signals of a run
    control                 stop and commit requests of other processes     hook_process    feeds the events to other tools
    shared_dataset          the data set in a memory file                   initial_weights the arrays that a network starts from

The run folder, in `folder/`:

    run_folder              one process at a time in a folder               manifest        the origin of its checkpoints
    start_event, outcome    the first and last lines of a run               resume_point    the state that workers begin from
    moved_job, refit        the job of a folder, elsewhere or for all items other_workers   a state shared out to other workers

A snapshot is a copy of the whole training state in one of four slots of the arena. The coordinator grants a free slot to the workers.
They fill it at the end of a round and offer it. The writer encodes and commits it: it writes the whole file, a checkpoint, to disk. The
coordinator then emits a `commit` event.
"""
