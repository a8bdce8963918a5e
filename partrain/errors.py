"""Every failure of a run, with the exit code that a script sees.

    Failure                      code  name
    +- BadCheckpoint               65  bad-checkpoint
    +- InputMissing                66  no-input
    +- WorkersLost                 69  workers-lost
    +- UserCodeFailed              71  user-code
    +- CannotCreate                73  cannot-create
    +- InputOutputFailed           74  io
    +- Stalled                     75  stalled
    +- Diverged                    76  diverged
    +- NotTrusted                  77  not-trusted
    +- BadJob                      78  bad-job

Any other exception that escapes is a defect of partrain itself: 70, with a traceback. 0, 1, 2, 130 and 143 are answers, not
failures: done, target not reached, usage, stopped by SIGINT, stopped by SIGTERM.
"""

from typing import ClassVar

OK = 0
NOT_REACHED = 1
USAGE = 2
INTERNAL = 70
INTERRUPTED = 130
TERMINATED = 143


def one_line(value: object) -> str:
    """Turn a value into one printable line: other characters, as in names of files or cells of tables, become spaces."""
    text = str(value)
    return text if text.isprintable() else " ".join("".join(char if char.isprintable() else " " for char in text).split())


class Failure(Exception):
    """A failure the user can act on.

    `message` is one line: what happened, where, and what to do. `detail` holds further lines. `rank` is the failed worker, if
    any.
    """

    code: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, message: str, detail: str = "", rank: int | None = None) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.detail = detail
        self.rank = rank

    def render(self) -> str:
        """Return the text for stderr: exactly one `partrain: error[...]` line, then the detail unchanged."""
        line = f"partrain: error[{self.name}]: {self.message}"
        return f"{line}\n{self.detail}" if self.detail else line


class UnlikeTraining(UserWarning):
    """Values of items that are unlike the training items'."""


class Internal(Exception):
    """A defect of partrain in another process: one line, followed by that process's traceback."""


class BadCheckpoint(Failure):
    """A checkpoint that is damaged, foreign, or does not fit the job."""

    code, name = 65, "bad-checkpoint"


class InputMissing(Failure):
    """A file that is missing or cannot be read."""

    code, name = 66, "no-input"


class WorkersLost(Failure):
    """A worker process died, or another machine does not answer."""

    code, name = 69, "workers-lost"


class UserCodeFailed(Failure):
    """The code or data that the job names raised an error; `detail` holds the frames of user code."""

    code, name = 71, "user-code"


class CannotCreate(Failure):
    """The output cannot be created, or exists already."""

    code, name = 73, "cannot-create"


class InputOutputFailed(Failure):
    """Writing failed while the run was under way."""

    code, name = 74, "io"


class Stalled(Failure):
    """A worker made no progress within the deadline; the run can be resumed."""

    code, name = 75, "stalled"


class Diverged(Failure):
    """Non-finite numbers in a replica, caught before they were mixed."""

    code, name = 76, "diverged"


class NotTrusted(Failure):
    """A checkpoint names user code that the user has not approved."""

    code, name = 77, "not-trusted"


class BadJob(Failure):
    """The job file is wrong; `detail` shows every problem with its position."""

    code, name = 78, "bad-job"


REPORTED: dict[int, type[Failure]] = {
    kind.code: kind
    for kind in (
        BadCheckpoint, InputMissing, WorkersLost, UserCodeFailed, CannotCreate, InputOutputFailed, Stalled, Diverged, NotTrusted, BadJob,
    )
}  # fmt: skip
"""The failures that a worker's process reports to the command, by exit code."""
