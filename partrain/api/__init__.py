"""Training from Python: in a script or a notebook, with the same workers, run folder and checkpoints as on the command line."""

from partrain.api.from_data import init
from partrain.api.trained import Trained, load
from partrain.api.training import train
from partrain.errors import Failure
from partrain.job.python_job import PythonJob as Job

__all__ = ["Failure", "Job", "Trained", "init", "load", "train"]
