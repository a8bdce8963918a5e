"""Settings of child processes that run Python."""

SAFE_PATH = ("-P",)
"""Option of Python that leaves the current folder out of `sys.path`: a file `torch.py` there may be a stranger's."""
FIXED_HASHES = {"PYTHONHASHSEED": "0"}
"""Environment under which sets in user code have the same order in each process and session."""
