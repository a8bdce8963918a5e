"""Several machines under torchrun or srun: machine 0 leads the run (`rendezvous`), the others lend it their workers (`follower`)."""
