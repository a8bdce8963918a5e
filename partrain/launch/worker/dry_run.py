"""The dry run: its own process tries user code (network and task) once before any worker starts.

The process takes the first steps of a worker of this machine, over its own row: it builds the network, computes loss and gradient of
the worker's first batch, and evaluates as many items. It reports errors once, and leaves no trace in the run. It also matches a file
that the network starts from; without user code the dry run ends there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import util
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partrain.checkpoint.start_file import differences
from partrain.comm.arena import Arena
from partrain.errors import Diverged, Failure, UserCodeFailed
from partrain.job.load import Job
from partrain.job.plan import Plan
from partrain.launch.worker.channel import Channel, explain, report
from partrain.launch.worker.code_files import CodeFiles
from partrain.launch.worker.messages import CodeChanged, CodeRead, DryRunPassed, RunRemark, StartedFrom
from partrain.launch.worker.rebuilt import SecondProcess
from partrain.launch.worker.setup import ProcessSetup, WorkerSetup
from partrain.launch.worker.spec import ProcessSpec, user_code_under_test
from partrain.launch.worker.task_checks import TaskChecks, kind
from partrain.models import Interface
from partrain.models.answers import CHANGED, ROUNDING, agree, probe
from partrain.models.freeze import frozen_sums
from partrain.tasks import UserTask
from partrain.tasks.known_metrics import import_torchmetrics
from partrain.tasks.task import Task
from partrain.training.after_judgement import AfterJudgement
from partrain.training.batches import Batches
from partrain.training.replica import persistent_buffers
from partrain.training.snapshot import load_network, slot_map
from partrain.training.snapshot_layout import PROBE
from partrain.training.stop import Progress
from partrain.training.worker import LocalWorker

MOST = 256
"""Most items to try if a batch is the whole partition."""

MOST_JUDGED = 1024
"""Most items to judge if the job has its own metrics: they may be undefined for a batch, for example one that lacks a class."""

BUILDING = "building"

ACTIVATIONS = {"SoftmaxBackward0": "softmax", "SigmoidBackward0": "sigmoid"}
"""Last operations of networks whose answers are probabilities, by autograd's names."""


def main(spec: ProcessSpec, channel: Channel) -> None:
    """Try user code, and the file that the network starts from, in this process."""
    (rank,) = spec.ranks
    beats = Arena(spec.arena_fd.detach(), len(spec.plan.shares), len(spec.job.metrics(spec.dataset.task))).beats

    def beat() -> None:
        beats[rank] += 1

    moved = list[str]()
    steps, doing = _steps(rank, spec, channel, beat, moved), ""
    try:
        while doing := next(steps, ""):
            beat()
        channel.send(DryRunPassed(moved))
    except BaseException as error:
        where = f"before any worker starts, {doing}"
        code = user_code_under_test(spec.job, judging=True)
        report(rank, where, error, explain(error, where, code, built=doing != BUILDING), channel)


def _steps(rank: int, spec: ProcessSpec, channel: Channel, on_wait: Callable[[], None], moved: list[str]) -> Iterator[str]:
    """Take a worker's first steps. Yield the name of each step before it.

    Add the frozen parameters that the network moves itself to `moved`.
    After the first name, a step longer than `stall_seconds` has stalled.
    """
    if spec.job.task and spec.job.task.metrics and util.find_spec("torchmetrics"):
        import_torchmetrics()  # it takes seconds
    second = SecondProcess(spec) if spec.job.network_code else None
    yield BUILDING
    files = CodeFiles(spec.folder) if user_code_under_test(spec.job, judging=True) else None
    shared = ProcessSetup(spec)
    setup = WorkerSetup(rank, shared, on_wait)
    if files:
        files.opening = False
    if setup.start_note:
        channel.send(StartedFrom(setup.start_note))
    if spec.start_file and not spec.point.resuming:
        for text in differences(spec.start_file, spec.dataset.codec, spec.job.model.start_exceptions):
            channel.send(RunRemark(text))
    if not user_code_under_test(spec.job, judging=True) and not spec.tries_built_in:
        return
    hook = AfterJudgement(spec.job.hooks, spec.folder) if spec.job.hooks.code else None
    batches, layout, job = setup.batches, setup.layout, spec.job
    if batches.batch_size == batches.size and isinstance(batches, Batches):
        batches.batch_size = min(batches.batch_size, MOST)
    _watch(setup.task, setup.interface, spec, channel)
    worker = setup.worker(torch.zeros(layout.numbers, dtype=layout.params.dtype, device=setup.device))
    slot_map(setup.module, layout, job.sync, len(spec.plan.shares))
    names = set(setup.module.state_dict())
    endless = [
        name for name, buffer in persistent_buffers(setup.module) if buffer.is_floating_point() and not buffer.isfinite().all()
    ]
    if endless:
        what = f"buffer `{endless[0]}` holds numbers that are not finite, so replicas of it have no mean"
        raise UserCodeFailed(f"{_named(job)}: {what}; register it with persistent=False if it is a constant")
    homes = _homes(setup.module)
    worker.begin(1, 0)
    worker.active = True  # also if the job lets it wait for its first round
    if shared.recorded:
        yield "comparing code and checkpoint"
        for text in _changes(setup, worker, shared.recorded, spec):
            channel.send(CodeChanged(text))

    frozen = frozen_sums(setup.module) if second else {}
    if user_code_under_test(job) or spec.tries_built_in:
        yield from _train(setup, worker, names, homes, job, spec.plan)
    if files:
        channel.send(CodeRead(files.digests(job.user_code)))
    own_metrics = bool(job.task and job.task.metrics_code)
    most = MOST_JUDGED if own_metrics else batches.batch_size
    judged = setup.held_out(most) or setup.test
    loss, correct, count = 0.0, 0.0, 1
    if judged:
        count = min(most, len(judged.targets))
        yield f"judging {count} items" if own_metrics else f"judging a batch of {count}"
        loss, correct = worker.evaluate(judged, range(count))
        if own_metrics and setup.metrics:
            setup.metrics.compute()
    if second:
        yield "comparing the network with one that is built again"
        worker.params.add_(0.01 * torch.randn(layout.params.size, generator=torch.Generator().manual_seed(0)).to(worker.params))
        inputs, targets = setup.samples.part(slice(0, min(batches.batch_size, len(setup.samples.targets))))
        try:
            second.compare(setup.module, setup.task, inputs, targets)
            probe(setup.module, setup.interface)
        except Failure:
            raise
        except Exception as error:
            what = (
                f"`{job.model.name}` cannot answer drawn items in evaluation mode ({type(error).__name__}: {error})".splitlines()[
                    0
                ]
            )
            channel.send(RunRemark(f"[model] name: {what}, so later commands cannot tell if its code has changed"))
        now = frozen_sums(setup.module)
        moved += [name for name, total in frozen.items() if now.get(name) != total]
    if hook:
        yield "calling the function `after_judgement`"
        accuracy = correct / count if setup.task.accuracy and judged else None
        hook.call(Progress(loss=loss / count, accuracy=accuracy), best=False, module=setup.module, dry_run=True)


def _changes(setup: WorkerSetup, worker: LocalWorker, recorded: dict[str, NDArray[Any]], spec: ProcessSpec) -> Iterator[str]:
    """Report numbers of user code that changed since the checkpoint: its network's answers, or the last judged numbers."""
    load_network(setup.module, recorded)
    job, progress, held_out = spec.job, spec.point.progress, setup.held_out()
    stored = recorded.get(PROBE)
    if stored is not None and not agree(probe(setup.module, setup.interface), torch.from_numpy(stored)):
        yield f"[model] name: `{job.model.name}`: {CHANGED}"
        return
    codes = ([job.task.name] if isinstance(job.task, UserTask) else []) + (job.task.metrics_code if job.task else [])
    if not codes or held_out is None or progress.judged_round != progress.round:
        return
    count = len(held_out.targets)
    loss, correct = worker.evaluate(held_out, range(count))
    now = {"loss": loss / count} | ({"accuracy": correct / count} if setup.task.accuracy else {})
    now |= setup.metrics.compute() if setup.metrics else {}
    before = {"loss": progress.loss, "accuracy": progress.accuracy} | progress.metrics
    for name, value in now.items():
        flips = 0 if name == "loss" else 2 / count  # another processor may decide differently about an item on the border
        was = before.get(name)
        if was is not None and not math.isclose(value, was, rel_tol=max(ROUNDING, flips)):
            named, checkpoint = "`, `".join(codes), "when the checkpoint was written"
            yield f"[task]: `{named}`: {name} of the held-out items is {value:.6g} now, and was {was:.6g} {checkpoint}"


def _train(
    setup: WorkerSetup,
    worker: LocalWorker,
    names: set[str],
    homes: dict[str, tuple[int, int]],
    job: Job,
    plan: Plan,
) -> Iterator[str]:
    """Train on a batch, and check that the network still has the same tensors; also train on the smallest batch of all workers.

    `names`: the names of its state.
    """
    batches = setup.batches
    yield f"training on a batch of {batches.batch_size}"
    worker.gradient()
    if not math.isfinite(worker.loss()):
        raise Diverged(f"{_named(job)}: the loss of the first batch is {worker.loss()}, not a finite number; look at the data")

    if late := sorted(set(setup.module.state_dict()) ^ names):
        raise UserCodeFailed(
            f"{_named(job)}: `{late[0]}` came or went with the first batch; make parameters and buffers in `__init__`"
        )

    if moved := [name for name, home in _homes(setup.module).items() if home != homes[name]]:
        what = f"parameter `{moved[0]}` was exchanged for another tensor with the first batch, and would not be trained"
        raise UserCodeFailed(f"{_named(job)}: {what}; change its numbers in place, as with `copy_` under torch.no_grad()")

    sizes = [
        job.optimizer.last_batch(size, share.spec.batch_size, whole_passes=share.spec.passes is not None)
        for share in plan.shares
        for size in dict.fromkeys(plan.clients or [share.partition])
        if size
    ]
    last = min(sizes, default=batches.batch_size)
    if last < batches.batch_size and isinstance(batches, Batches):
        yield f"training on a batch of {last}, the last of a pass"
        batches.batch_size = batches.largest_batch = last
        worker.begin(2, 0)
        worker.gradient()


def _homes(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the identity of each parameter by name, and the address of each trained one."""
    return {
        name: (id(parameter), parameter.requires_grad and parameter.data_ptr()) for name, parameter in module.named_parameters()
    }


def _watch(task: Task, interface: Interface, spec: ProcessSpec, channel: Channel) -> None:
    """Make the task check the values that network and user code return. It raises UserCodeFailed for invalid values."""
    job, remarks = spec.job, set[str]()
    name = job.task.name if isinstance(job.task, UserTask) else ""

    def look(answers: Any) -> None:
        _check_answers(answers, interface, job.model.name)
        if (remark := _remark(answers, interface, job.model.name)) and remark not in remarks:
            remarks.add(remark)
            channel.send(RunRemark(remark))

    TaskChecks(task, name, _named(job), None if name else look)


def _check_answers(answers: Any, interface: Interface, name: str) -> None:
    """Check the answers (b, ...) of a network to a built-in task. There may be more logits than classes."""
    if not isinstance(answers, Tensor):
        raise UserCodeFailed(f"[model] name: `{name}` gives {kind(answers)}; expected a tensor (items, ...)")
    shape, expected = tuple(answers.shape), (len(answers) if answers.dim() else 1, *interface.answer)
    fits = shape == expected
    if interface.kind.more_logits:
        fits = len(shape) == len(expected) and shape[:-1] == expected[:-1] and shape[-1] >= expected[-1]
    if not fits:
        words = ", ".join(map(str, ("items", *interface.answer)))
        raise UserCodeFailed(f"[model] name: `{name}` gives {kind(answers)}; expected ({words}) for this data set and task")


def _remark(answers: Tensor, interface: Interface, name: str) -> str:
    """Return a remark on answers that are probabilities if the task expects logits; else "". A log-softmax does no harm."""
    step = answers.grad_fn.name() if answers.grad_fn else ""
    if not interface.kind.logits or step not in ACTIVATIONS:
        return ""
    what = f"[model] name: `{name}` ends in a {ACTIVATIONS[step]}, but the loss of `{interface.task}` expects logits"
    return f"{what} and applies its own: training is slowed down, and probabilities come out flat; leave it out"


def _named(job: Job) -> str:
    """Name the code under test; without user code, the network."""
    return user_code_under_test(job) or "the network"
