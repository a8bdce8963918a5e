"""Steps on a Dask cluster: the scheduler assigns each step to a worker that has announced enough cores and GPUs.

The cluster's workers see the workflow's folder under the same path (a shared file system) and have partrain installed. They announce
their resources: `dask worker ADDRESS --nthreads 8 --resources "cores=8 GPU=2 memory=16e9"`. If a worker is lost, Dask restarts
its steps elsewhere, and a step that trains continues from its last checkpoint. `--cluster slurm` starts a separate scheduler,
whose workers SLURM starts.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from partrain.errors import INTERRUPTED, TERMINATED, Failure
from partrain.record.file_names import CHECKPOINT, LOG
from partrain.system.atomic_file import atomic_file
from partrain.system.child_process import ChildProcess
from partrain.system.children import SAFE_PATH
from partrain.system.regular_file import open_to_append, read_object, read_regular
from partrain.workflow.executor import OUTPUT, CannotStart, StepTask, program_environment
from partrain.workflow.resources import Resources

WORKER = "worker.json"
"""File in a step's folder that names the worker which runs the step, and its attempt."""
SIGNALS = "signals.txt"
"""File in a step's folder through which the runner sends signals: one number per line."""
POLL_S = 0.1
CONNECT_S = 10
"""Seconds to reach the scheduler."""
SLURM = "slurm"
"""Word for a separate scheduler, in place of an address."""
MOST_PREEMPTIONS = 100
"""Losses of a worker after which Dask gives up a step, if SLURM provides the workers."""


class NoCluster(Failure):
    """The scheduler cannot be reached."""

    code, name = 69, "no-cluster"


class TaskOutcome(NamedTuple):
    """The end of a step on a worker."""

    code: int
    message: str = ""
    """The reason if the step could not start."""


class ClusterExecutor:
    """Submits steps to a Dask scheduler, which queues them until a worker is free."""

    def __init__(self, address: str, most: int | None = None) -> None:
        """Connect to the scheduler. "slurm" starts one, for at most `most` allocations at once.

        Raises:
            CannotStart: Dask is not installed, or does not know what to request from SLURM.
            NoCluster: The scheduler does not answer, or SLURM is not installed here.
        """
        try:
            from distributed import Client
        except ImportError:
            raise CannotStart("--cluster needs Dask, which is not installed: pip install 'partrain[cluster]'") from None
        for name in ("distributed", "distributed.client"):  # the runner reports errors in one line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._own = _slurm_cluster(most) if address == SLURM else None
        address = self._own.scheduler_address if self._own else address
        try:
            self._client = Client(address, timeout=CONNECT_S, name="partrain")
        except TypeError as error:  # raised by Dask for an address tls://... without certificates
            raise NoCluster(
                f"Dask cannot connect to {address}: {error}; name your certificates in Dask's configuration"
            ) from None
        except (OSError, TimeoutError, ValueError) as error:
            raise NoCluster(f"no Dask scheduler answers at {address}: {error}") from None

    def fits(self, wanted: Resources) -> bool:
        """Return True: the scheduler makes the step wait."""
        return True

    def start(self, task: StepTask) -> ClusterStep:
        """Submit a step to the scheduler."""
        for name in (WORKER, SIGNALS):
            (task.folder / name).unlink(missing_ok=True)
        wanted = {
            "cores": float(task.resources.cores),
            "GPU": float(len(task.resources.devices)),
            "memory": float(task.resources.memory),
        }
        wanted = {name: count for name, count in wanted.items() if count}
        key = f"{task.name}-{uuid.uuid4().hex[:8]}"
        future = self._client.submit(run_task, task, key, key=key, resources=wanted, pure=False)
        missing = [f"{count:g} {name}" for name, count in wanted.items() if not self._announced(name, count)]
        return ClusterStep(future, task.folder, f"queued; no worker announces {' and '.join(missing)}" if missing else "queued")

    def ended(self, name: str) -> None:
        """Do nothing: the scheduler frees resources."""

    def close(self) -> None:
        """Leave the cluster, which keeps running; end a separate one together with its allocations."""
        self._client.close()
        if self._own:
            self._own.close()

    def _announced(self, resource: str, count: float) -> bool:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return self._own is not None or any(worker.get("resources", {}).get(resource, 0) >= count for worker in workers)


def _slurm_cluster(most: int | None) -> Any:
    """Return a scheduler in this process that requests a SLURM allocation for each waiting step, and releases idle ones."""
    import dask

    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError:
        raise CannotStart(
            "--cluster slurm needs dask-jobqueue, which is not installed: pip install 'partrain[cluster]'"
        ) from None
    if not shutil.which("sbatch"):
        raise NoCluster("--cluster slurm needs SLURM's sbatch, which is not on this machine")
    cores, words = dask.config.get("jobqueue.slurm.cores"), dask.config.get("jobqueue.slurm.worker-extra-args", [])
    announced = words if "--resources" in words else [*words, "--resources", f"cores={cores}"]
    # dask-jobqueue writes the words into a shell command line.
    announced = [shlex.quote(word) if len(shlex.split(word)) > 1 else word for word in announced]
    dask.config.set({
        "distributed.scheduler.unknown-task-duration": "1h",  # so long that each step is worth an allocation
        "distributed.scheduler.allowed-failures": MOST_PREEMPTIONS,
    })  # fmt: skip
    try:
        cluster = SLURMCluster(processes=1, worker_extra_args=announced, scheduler_options={"dashboard_address": None})
    except ValueError as error:
        advice = "write cores, memory, queue and walltime below `jobqueue: slurm:` in ~/.config/dask/jobqueue.yaml"
        raise CannotStart(f"Dask does not know what to ask SLURM for: {error}; {advice}") from None
    cluster.adapt(minimum=0, **({"maximum_jobs": most} if most else {}))
    return cluster


class ClusterStep:
    """A step that waits for a worker of the cluster, or runs on one."""

    def __init__(self, future: Any, folder: Path, queued: str) -> None:
        self._future, self._folder, self._queued, self._withdrawn = future, folder, queued, False
        self.waitable = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable when the step has ended."""
        future.add_done_callback(lambda _: os.eventfd_write(self.waitable, 1))

    @property
    def where(self) -> str:
        """The host that runs the step, else why it waits."""
        return str(read_object(self._folder / WORKER).get("host", self._queued))

    @property
    def has_begun(self) -> bool:
        """True once a worker runs the step."""
        return (self._folder / WORKER).exists()

    def exit_code(self) -> int:
        """Return the exit code. Raises `CannotStart`, `NoCluster`."""
        os.close(self.waitable)
        if self._future.cancelled():
            if self._withdrawn:
                return INTERRUPTED
            self.signal(signal.SIGINT)  # the worker reads it from the folder, without the scheduler
            raise NoCluster("the scheduler is gone; the step ends with a checkpoint, and the same command goes on")
        try:
            outcome: TaskOutcome = self._future.result()
        except Exception as error:  # raised by Dask: KilledWorker after several losses, or the worker's error
            raise NoCluster(f"the cluster gave the step up: {type(error).__name__}: {error}") from None
        if outcome.message:
            raise CannotStart(outcome.message)
        return outcome.code

    def signal(self, number: int) -> None:
        """Send a signal to the step's processes; withdraw a step that still waits for a worker."""
        with (self._folder / SIGNALS).open("a") as file:
            file.write(f"{number}\n")
        if not self.has_begun:
            self._withdrawn = True
            self._future.cancel()


# On the worker


def run_task(task: StepTask, key: str) -> TaskOutcome:
    """Run a step on a worker of the cluster, in processes that die with the worker."""
    if not task.folder.is_dir():
        return TaskOutcome(
            0, f"{task.folder} is not there on {os.uname().nodename}: the cluster's workers need the workflow's folder"
        )
    attempt = _Attempt(task, key)
    attempt.take_over()
    return attempt.run()


@dataclass
class _Attempt:
    """One attempt at a step, on one worker."""

    task: StepTask
    key: str

    def __post_init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._sent = 0

    def take_over(self) -> None:
        """Become the current attempt. An earlier one that still runs, cut off from the scheduler, notices it and ends at once."""
        former = (self.task.folder / WORKER).exists()
        with atomic_file(self.task.folder / WORKER) as descriptor:
            content = {"host": os.uname().nodename, "pid": os.getpid(), "attempt": self._token, "started": time.time()}
            os.write(descriptor, json.dumps(content).encode())
        if former:
            time.sleep(10 * POLL_S)

    def run(self) -> TaskOutcome:
        """Run the step's process to its end, and forward signals to it."""
        try:
            process = self._start()
        except OSError as error:
            return TaskOutcome(0, f"{self.task.words[0]}: {error.strerror} on {os.uname().nodename}")
        while not process.wait(POLL_S):
            for number in [signal.SIGKILL] if self._replaced() else self._signals():
                process.signal(number)
        assert process.exit_code is not None
        if process.exit_code == TERMINATED and not self._sent:  # by the machine, which is being removed from the cluster
            from distributed import Reschedule

            raise Reschedule
        return TaskOutcome(process.exit_code)

    def _start(self) -> ChildProcess:
        folder, words = self.task.folder, self.task.words
        if self.task.resume_words and (folder / CHECKPOINT).exists():
            words = self.task.resume_words
        guard = [sys.executable, *SAFE_PATH, "-m", "partrain.system.parent_death", str(os.getpid())]
        program = [] if self.task.is_program else [sys.executable, *SAFE_PATH, "-m", "partrain"]
        self.task.note([*words, "  # on", os.uname().nodename])
        with open(open_to_append(folder / LOG), "ab") as log:
            output = (folder / OUTPUT).open("wb") if "--json" in words and not self.task.is_program else log
            with output:
                return ChildProcess.program(
                    [*guard, *program, *words], cwd=self.task.base, stdout=output, stderr=log, env=program_environment(self.task),
                    start_new_session=True,
                )  # fmt: skip

    def _replaced(self) -> bool:
        """Return whether another attempt now runs this step."""
        return bool(read_object(self.task.folder / WORKER).get("attempt", self._token) != self._token)

    def _signals(self) -> list[int]:
        """Return the signals since the last check: from the runner, or one if the runner has ended."""
        numbers: list[int] = []
        with suppress(OSError, ValueError):
            numbers = [int(line) for line in read_regular(self.task.folder / SIGNALS).split()]
        if not numbers and self._withdrawn():
            numbers = [signal.SIGINT]
        fresh, self._sent = numbers[self._sent :], max(self._sent, len(numbers))
        return fresh

    def _withdrawn(self) -> bool:
        """Return whether the scheduler no longer wants the step, for example after the runner was killed."""
        from distributed import get_worker

        state = get_worker().state.tasks.get(self.key)
        return state is None or state.state == "cancelled"
