"""The run folder: who may write in it, the first and last lines of a run, and the state that a run continues from."""
