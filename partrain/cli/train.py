"""`partrain run`, `partrain resume` and `partrain refit`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from partrain.checkpoint.runs import run_folder_of, runs_in
from partrain.cli.endings import finish, nothing_to_do
from partrain.cli.options import AcceptChanges, Debug, Json, Out, Overrides, Params, Quiet, TrustCode, Verbose
from partrain.cli.run_options import LOOPBACK, HookOptions, Log, MetricsHost, MetricsPort, RunOptions
from partrain.cli.shared import examples, print_note, print_warning, print_warnings
from partrain.errors import BadCheckpoint, Failure, InputMissing, WorkersLost
from partrain.inference.open import load_job, open_checkpoint
from partrain.record.file_names import RUNNER
from partrain.record.run_folder import RunFolder

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.comm.machine import Machine
    from partrain.job.load import LoadedJob
    from partrain.record.events import BesideTrivial
    from partrain.record.final_scores import FinalScores

app = typer.Typer()

JOB_OPTIONS = ("continue_", "metrics_port", "metrics_host", "verbose")
RUN_OPTIONS = ("latest", "until", "out", "job", "set_", "trust_code", "accept_changes", "metrics_port", "metrics_host", "verbose")
WORKFLOW_OPTIONS = ("dry_run", "jobs", "rerun", "only", "start_at", "keep_going", "retries", "cluster", "cache", "param")

Steps = Annotated[list[str] | None, typer.Option("--rerun", metavar="STEP", help="Workflow: run a step though nothing changed.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="STEP", help="Workflow: run this step only.")]
StartAt = Annotated[str | None, typer.Option("--start-at", metavar="STEP", help="Workflow: run this step and all that need it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Workflow: print each step with the reason why it would run.")]
AtOnce = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="Workflow: run at most N steps at once; default: as many as fit on cores and GPUs.",
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", "-k", help="Workflow: after a failure, run the steps that do not need the failed one.")
]
Retries = Annotated[
    int, typer.Option("--retries", min=0, metavar="N", help="Workflow: number of times to try a failed step again.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Workflow: run the steps on the cluster of this Dask scheduler; slurm: each in an allocation of SLURM.",
    ),
]

Cache = Annotated[
    str | None,
    typer.Option(
        "--cache", metavar="DIR", help="Workflow: share results with others by this folder, or an address as s3://BUCKET/PATH."
    ),
]
Continue = Annotated[bool, typer.Option("--continue", help="Job: if DIR of --out holds its run, continue it, as `resume` does.")]
PlannedText = Annotated[
    Path | None, typer.Option("--text", hidden=True, help="The job as a workflow read it; its paths start at FILE's folder.")
]
"""Option used by steps of workflows: their job is the job at the time when the workflow was checked."""


@app.command(
    epilog=examples(
        "partrain run jobs/mnist.toml",
        "partrain run jobs/mnist.toml --set optimizer.lr=0.1 --out runs/mine",
        "partrain run jobs/mnist.toml --out runs/mine --continue",
        "partrain run jobs/mnist.toml --log tensorboard --metrics-port 9400",
        "partrain run jobs/workflows/wine.toml",
    )
)
def run(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="A job, a workflow, several jobs, or a folder of jobs.")],
    out: Out = None,
    set_: Overrides = None,
    *,
    continue_: Continue = False,
    dry_run: DryRun = False,
    jobs: AtOnce = None,
    rerun: Steps = None,
    only: Only = None,
    start_at: StartAt = None,
    keep_going: KeepGoing = False,
    retries: Retries = 0,
    cluster: Cluster = None,
    cache: Cache = None,
    param: Params = None,
    log: Log = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
    text: PlannedText = None,
) -> None:
    """Train a job, or run a workflow. Exit 1 if a target was not reached or an assertion does not hold."""
    from partrain.config.toml_source import TomlSource
    from partrain.workflow.kinds import is_sweep, is_workflow

    if not text and (len(files) > 1 or files[0].is_dir() or is_workflow(files[0]) or is_sweep(files[0], set_ or ())):
        from partrain.cli.workflow import run_workflow
        from partrain.workflow.plan import Selection
        from partrain.workflow.runner import Options

        if misplaced := _given(context, JOB_OPTIONS):
            raise typer.BadParameter("this option is for a job, not for a workflow", param_hint=misplaced[0])
        HookOptions.checked(log, None, LOOPBACK)
        selection = Selection(frozenset(only or ()), start_at, frozenset(rerun or ()))
        options = Options(selection, jobs, keep_going, retries, cluster, cache, tuple(log or ()))
        raise typer.Exit(
            run_workflow(
                files,
                out,
                set_ or (),
                options,
                params=param or (),
                dry_run=dry_run,
                quiet=quiet,
                as_json=as_json,
                line=context.obj,
            )
        )
    if misplaced := _given(context, WORKFLOW_OPTIONS):
        TomlSource.read(files[0])  # a file that is not TOML is not a job either: report that first
        raise typer.BadParameter(f"{files[0]} is a job; this option is for workflows", param_hint=misplaced[0])
    if continue_ and not out:
        raise typer.BadParameter("needs the folder of the run: --out DIR", param_hint="--continue")
    hooks = HookOptions.checked(log, metrics_port, metrics_host)
    with _this_machine() as machine:
        from partrain.job.load import load

        former = _former_run(machine, out, continued=continue_)
        loaded = load(files[0], set_ or (), text=text, resuming=former is not None)
        _train(machine, loaded, out, former, RunOptions(hooks, quiet, as_json, verbose))


def _given(context: typer.Context, names: Collection[str]) -> list[str]:
    """Return which of these options are on the command line."""
    sources = {
        option.opts[0]: context.get_parameter_source(option.name) for option in context.command.params if option.name in names
    }
    return [flag for flag, source in sources.items() if source and source.name == "COMMANDLINE"]


@app.command(epilog=examples("partrain refit runs/wine", "partrain refit runs/wine --out runs/wine-refit"))
def refit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a checkpoint.")],
    out: Out = None,
    *,
    trust_code: TrustCode = False,
    log: Log = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a run's job anew, also on its held-out items, for as many rounds as its best network had."""
    hooks = HookOptions.checked(log, metrics_port, metrics_host)
    with _this_machine() as machine:
        if machine and machine.number:
            _follow(machine, None)
        from partrain.launch.folder.refit import on_all_items

        path, content = open_checkpoint(run, print_note)
        loaded = on_all_items(load_job(content, path, trusted=trust_code, use="run"), content, path)
        _train(machine, loaded, out, _former_run(machine, out), RunOptions(hooks, quiet, as_json, verbose))


def _train(machine: Machine | None, loaded: LoadedJob, out: Path | None, former: Path | None, options: RunOptions) -> None:
    """Train one job, or continue from the newest checkpoint in the folder of its earlier attempt."""
    print_warnings(loaded)
    if machine and machine.number:
        _follow(machine, loaded)
    folder, made = former, None
    if folder and RunFolder(folder).newest_checkpoint:
        _resume_with(machine, folder, (), None, None, (), trust_code=False, options=options, trusted=loaded)
        return
    from partrain.launch.folder.run_folder import new_folder
    from partrain.launch.run import run as train

    hooks = options.hooks.open()
    if folder is None:
        folder, made = new_folder(out, loaded.job.name)
    finish(train(loaded, options.context(folder, hooks, machine, made)), loaded, as_json=options.as_json)


@app.command(
    epilog=examples("partrain resume runs/mnist", "partrain resume --latest", "partrain resume runs/mnist --until rounds=500")
)
def resume(
    context: typer.Context,
    checkpoint: Annotated[
        Path | None,
        typer.Argument(metavar="CKPT.h5", help="A checkpoint, a run folder for its newest one, or the folder of a workflow."),
    ] = None,
    *,
    latest: Annotated[bool, typer.Option("--latest", help="Continue the newest run in runs/.")] = False,
    until: Annotated[
        list[str] | None, typer.Option("--until", metavar="KEY=VALUE", help="Move a condition of [stop], as in rounds=500.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Run folder to write to, for a checkpoint that is in no run folder."),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option("--job", metavar="JOB.toml", help="The same job with new paths, if its data or code have moved."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help='Other workers: `workers.0.count=4`, or `workers=[{device="cuda"}]`.'),
    ] = None,
    trust_code: TrustCode = False,
    accept_changes: AcceptChanges = False,
    log: Log = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Continue from a checkpoint, with the same bits as an uninterrupted run; exit 0 if there is nothing to do.

    The folder of a workflow, as `runs/study`: continue each unfinished step, as `partrain run` would.
    """
    if checkpoint and (checkpoint / RUNNER).exists():
        if misplaced := _given(context, RUN_OPTIONS):
            raise typer.BadParameter(f"{checkpoint} is of a workflow; this option is for a run", param_hint=misplaced[0])
        from partrain.cli.workflow import resume_workflow

        raise typer.Exit(resume_workflow(checkpoint, log or (), quiet=quiet, as_json=as_json, line=context.obj))
    hooks = HookOptions.checked(log, metrics_port, metrics_host)
    options = RunOptions(hooks, quiet, as_json, verbose)
    with _this_machine() as machine:
        if machine and machine.number:
            _follow(machine, None)
        if (checkpoint is None) != latest:
            raise typer.BadParameter("give a checkpoint, a run folder, or --latest", param_hint="CKPT.h5")
        if (former := _former_run(machine)) and RunFolder(former).newest_checkpoint:
            path, out = former, None
        elif checkpoint:
            path = checkpoint
        else:
            path = runs_in(Path("runs"))[0]
            print_note(f"the newest run: {path}")
        _resume_with(
            machine,
            path,
            until or (),
            out,
            job,
            set_ or (),
            trust_code=trust_code,
            options=options,
            accept_changes=accept_changes,
        )


def _resume_with(
    machine: Machine | None,
    checkpoint: Path,
    until: Sequence[str],
    out: Path | None,
    job: Path | None,
    workers: Sequence[str],
    *,
    trust_code: bool,
    options: RunOptions,
    accept_changes: bool = False,
    trusted: LoadedJob | None = None,
) -> None:
    """Continue from a checkpoint.

    `trusted`: a job of the user; the checkpoint's job may name code and files if it is the same.
    """
    path, content = open_checkpoint(checkpoint, print_note, newest=checkpoint.is_dir())
    if not any(name.startswith("workers/") for name in content.arrays):
        raise BadCheckpoint(f"{path} holds a network but no workers, as soups do: nothing to resume; resume one of its members")
    if trusted and content.job == trusted.text and content.manifest["folder"] == str(trusted.folder):
        trust_code = True
    loaded = _job_to_resume(content, path, job, trust_code=trust_code, until=until, workers=workers)
    from partrain.launch.folder.moved_job import ignored_change
    from partrain.launch.folder.resume import already_finished, drop_met_targets, finish_interrupted_run, made_progress
    from partrain.launch.folder.resume import resume as proceed
    from partrain.launch.folder.run_folder import new_folder

    if trusted and (ignored := ignored_change(trusted, content)):
        print_warning(ignored)
    loaded = drop_met_targets(loaded, content, until)
    own = run_folder_of(path)
    folder = out or own
    if (reason := already_finished(loaded, content, own)) is not None:
        whole = _job_to_resume(content, path, job, trust_code=trust_code, until=(), workers=workers) if until else loaded
        end = already_finished(whole, content, own)  # --until may end a run here that its job does not
        if own and end is not None:
            finish_interrupted_run(whole, content, own, end, _evaluated)
        if machine:
            from partrain.launch.machines.rendezvous import Rendezvous

            Rendezvous(machine).withdraw("")
        nothing_to_do(path, content, reason, loaded, ended=end is not None, as_json=options.as_json)
        return
    hooks, made = options.hooks.open(), None
    if folder is None or out is not None:
        folder, made = new_folder(out, loaded.job.name)
    context = options.context(folder, hooks, machine, made)
    outcome = proceed(
        loaded,
        content,
        context,
        moved=job is not None,
        other_workers=bool(workers or machine),
        source=path if folder != own else None,
        accept_changes=accept_changes,
    )
    outcome = replace(outcome, checkpoint=outcome.checkpoint or path)  # the checkpoint it resumed from, if it added none
    finish(outcome, loaded, as_json=options.as_json, until=() if made_progress(context, content) else until)


def _evaluated(
    loaded: LoadedJob, content: Content
) -> tuple[FinalScores | None, dict[str, dict[str, float]], dict[str, BesideTrivial]]:
    from partrain.inference.network import evaluate_at_end  # imports torch, which a finished run does without

    return evaluate_at_end(loaded, content)


def _job_to_resume(
    content: Content, path: Path, job: Path | None, *, trust_code: bool, until: Sequence[str], workers: Sequence[str]
) -> LoadedJob:
    """Load a checkpoint's job, or the user's, which gives the new location of its data; `workers`: overrides of `[[workers]]`."""
    from partrain.config.problems import Unreadable
    from partrain.job.load import parse
    from partrain.launch.folder.moved_job import moved_job, with_advice

    if other := [worker for worker in workers if worker.partition("=")[0].strip().partition(".")[0] != "workers"]:
        raise typer.BadParameter(
            f"`{other[0]}`: a resumed run may change its workers and, by --until, its end", param_hint="--set"
        )
    if job is not None:
        loaded = moved_job(job, content, until, print_note)
        return (
            parse(loaded.text, loaded.folder, f"{path}:/job", local=True, overrides=workers, resuming=True) if workers else loaded
        )
    try:
        return load_job(content, path, trusted=trust_code, use="run", until=until, workers=workers)
    except Unreadable as missing:
        raise with_advice(missing) from None


@contextmanager
def _this_machine() -> Iterator[Machine | None]:
    """Join the other machines under torchrun or srun; yield this one, else None. The process then exits when its starter dies.

    At the end, leave the others. They wait for the first machine's proposal: if it fails earlier, send them the reason.
    """
    from partrain.comm.machine import Machine

    machine = Machine.find()
    if machine is None:
        yield None
        return
    from partrain.launch.machines.rendezvous import Rendezvous, announced, meet, part
    from partrain.system.parent_death import die_with_parent

    die_with_parent(os.getppid())
    with announced(machine, print_note):
        machine = meet(machine)
    try:
        yield machine
    except Failure as failure:
        if not machine.number and not isinstance(failure, WorkersLost):
            with suppress(RuntimeError):  # the store is gone
                Rendezvous(machine).withdraw(failure.message)
        raise
    finally:
        part(machine)


def _follow(machine: Machine, own: LoadedJob | None) -> NoReturn:
    """Lend this machine's workers to the run of the first machine, and exit."""
    from partrain.launch.machines.follower import run_follower

    if failure := run_follower(machine, own, print_note):
        raise failure
    raise typer.Exit(0)


def _former_run(machine: Machine | None, out: Path | None = None, *, continued: bool = False) -> Path | None:
    """Return the run folder of the earlier attempt, if any.

    The attempt may be one of torchrun, of a job that SLURM has requeued, or of `continued`.
    """
    folder = machine.former if machine else None
    if machine and machine.number:
        return folder
    restarted = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
    if out and (restarted or continued) and RunFolder(out).newest_checkpoint:
        why = "SLURM has started this job again: " if restarted else ""
        print_note(f"{why}the run in {out} goes on, with the job of its checkpoint")
        return out
    if folder and not folder.is_dir():
        raise InputMissing(
            f"{folder}: the former attempt wrote there, and this machine, now the first one, has no such folder; "
            "give all machines one --out on a shared file system"
        )
    return folder
