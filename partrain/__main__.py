"""The entry point. Commands that train start the forkserver before all other imports."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and __file__ != f"{sys.path[0]}/partrain/__main__.py":
    del sys.path[0]  # the current folder, by `python -m`: a file `torch.py` there is no part of partrain

try:
    import gc
    import signal
except KeyboardInterrupt:  # nothing has started
    os._exit(130)

TRAINING = {"run", "resume", "refit", "bench"}
ANSWERING = {"resume", "refit", "evaluate", "predict", "export", "soup", "diff", "report"}
"""Commands that build the network of a checkpoint, which may walk a set."""
LASTING = TRAINING | ANSWERING - {"diff", "report"} | {"compare"}


def main() -> None:
    """Run `partrain` or `python -m partrain`."""
    _fix_hashes()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit_on_signal)
    _reserve_std_fds()
    command, *words = sys.argv[1:] or [""]
    # A request for help or a misspelt file name must not wait for torch.
    has_files = command == "bench" or any(map(os.path.exists, words))
    trains = command in TRAINING and has_files and not {"--help", "-h", "--dry-run", "-n"} & set(words)
    if command not in LASTING:
        # Garbage collection and the search for pydantic plugins take a good part of a short command's time.
        gc.disable()
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    if trains:
        from contextlib import suppress

        from partrain.errors import Failure
        from partrain.launch import forkserver
    try:
        if trains:
            with suppress(Failure):  # the command meets it again, and tells
                forkserver.start()
        from partrain.cli.main import main as run_command
        from partrain.system.stdio import tolerate_closed_stdout

        tolerate_closed_stdout(run_command)
    finally:
        if trains:
            forkserver.stop()


def _fix_hashes() -> None:
    """Start this command again where sets in user code would have another order than in the workers."""
    words = sys.argv[1:]
    if words[:1] and words[0] in ANSWERING and sys.flags.hash_randomization and sys.orig_argv[-len(words) :] == words:
        from partrain.system.children import FIXED_HASHES

        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | FIXED_HASHES)


def _reserve_std_fds() -> None:
    """Open /dev/null for closed standard streams: a file or pipe opened later must not get their numbers, and their output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the workers' are closed otherwise


def _exit_on_signal(number: int, frame: object) -> None:
    """Exit on a signal before there is a run to end. No exception: half-done imports would print or swallow it."""
    if (forkserver := sys.modules.get("partrain.launch.forkserver")) and hasattr(
        forkserver, "without_main"
    ):  # imported, and whole
        forkserver.stop()
    code, what = 130 if number == signal.SIGINT else 143, f"stopped by {signal.Signals(number).name} before there was a result"
    try:
        os.write(2, f"partrain: {what}\n".encode())
        if "--json" in sys.argv:
            os.write(1, f'{{"error": {{"name": "stopped", "code": {code}, "message": "{what}"}}}}\n'.encode())
    except OSError:  # the reader has gone
        pass
    os._exit(code)


if __name__ == "__main__":
    main()
