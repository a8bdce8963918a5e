"""Where a command begins: those that train start the forkserver before anything else is imported."""

import sys

TRAINING = ("run", "resume", "bench")


def main() -> None:
    """Entry point of `partrain` and of `python -m partrain`."""
    if len(sys.argv) > 2 and sys.argv[1] in TRAINING and not {"--help", "-h"} & set(sys.argv):
        from partrain.launch import prefork

        prefork.start()
    from partrain.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
