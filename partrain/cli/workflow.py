"""Workflows on the command line: `partrain run STUDY.toml`, `partrain run A.toml B.toml`, and `partrain flow show`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from partrain.cli.options import Debug, Json, Params
from partrain.cli.shared import CommandLine, examples, print_wrapped
from partrain.errors import INTERRUPTED, NOT_REACHED, OK, TERMINATED, BadJob, InputMissing
from partrain.number_format import counted, plural
from partrain.record.file_names import RUNNER, WORKFLOW
from partrain.system.environment import boot_seconds

if TYPE_CHECKING:
    from partrain.display.workflow_table import StepRow
    from partrain.workflow.commands import Commands, CommandSpec
    from partrain.workflow.executor import Executor
    from partrain.workflow.results import Results
    from partrain.workflow.runner import Options, Runner
    from partrain.workflow.state import StepState
    from partrain.workflow.step import Workflow

app = typer.Typer(name="flow", no_args_is_help=True, help="Look at workflows.", rich_markup_mode=None)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The workflow file.")]
StudyFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The folder of the workflow; default: runs/<name>.")
]
OUTPUTS = ("output", "out", "html")
"""Options that name an output file of a command."""
TRAINING = ("bench", "compare")
"""Commands that start workers."""
NO_STEPS_IN = ("flow", "runs")
"""Groups of commands that cannot be steps: they show or remove runs and workflows."""
NOT_STEPS = ("run", "resume", "refit")
"""Commands that cannot be steps: a step that trains has a `job`."""


def commands(parts: Sequence[typer.Typer]) -> Commands:
    """Return the commands that a step may run, from the definition of the command line. A step that trains has a `job`."""
    specs: dict[str, CommandSpec] = {}
    for part in parts:
        group = part.info.name if isinstance(part.info.name, str) else ""
        for command in part.registered_commands if group not in NO_STEPS_IN else ():
            assert command.callback
            name = f"{group} {command.name or command.callback.__name__.replace('_', '-')}".strip()
            if name not in NOT_STEPS:
                specs[name] = _spec(tuple(name.split()), command.callback)
    return specs


def _spec(words: tuple[str, ...], function: Callable[..., Any]) -> CommandSpec:
    """Describe a command by the parameters of its function."""
    from partrain.workflow.commands import CommandSpec, Kind, Parameter

    defaults = {name: parameter.default for name, parameter in signature(function).parameters.items()}
    parameters = []
    for name, hint in get_type_hints(function, include_extras=True).items():
        if name in ("return", "debug", "context"):
            continue
        plain, info = get_args(hint)[:2]
        words_given = [
            getattr(info, "default", None),
            *(getattr(info, "param_decls", None) or ()),
        ]  # typer stores the first apart
        flag = next((word for word in words_given if isinstance(word, str) and word.startswith("--")), "")
        flag = flag or ("" if type(info).__name__ == "ArgumentInfo" else f"--{name.replace('_', '-')}")
        key = flag.partition("/")[0].removeprefix("--").replace("-", "_") or name
        types = _leaves(plain)
        kind: Kind = "switch" if bool in types else "output" if key in OUTPUTS else "input" if Path in types else "value"
        parameters.append(Parameter(key, flag, kind, list in types, defaults[name] is Signature.empty))
    return CommandSpec(words, tuple(parameters), words[0] in TRAINING)


def _leaves(hint: Any) -> set[Any]:
    """Return the types in a hint: `list[Path] | None` has list and Path."""
    inner = set[Any]().union(*(_leaves(arg) for arg in get_args(hint)))
    return inner | {get_origin(hint) or hint}


def run_workflow(
    paths: Sequence[Path],
    out: Path | None,
    overrides: Sequence[str],
    options: Options,
    *,
    params: Sequence[str] = (),
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    line: CommandLine,
) -> int:
    """Run a workflow, or several jobs as one; return the exit code."""
    from partrain.comm.machine import NOT_FOR_STEPS, Machine
    from partrain.workflow.digests import Digests
    from partrain.workflow.kinds import is_workflow
    from partrain.workflow.load import load, of_jobs
    from partrain.workflow.plan import folded, preview
    from partrain.workflow.results import Results

    if (machine := Machine.find()) and not machine.alone:
        raise BadJob("a workflow is run on one machine; its step of a job on several names `machines` and a `launcher`")
    for name in NOT_FOR_STEPS:
        os.environ.pop(name, None)
    single = len(paths) == 1 and not paths[0].is_dir() and is_workflow(paths[0])
    if single and overrides:
        raise typer.BadParameter(
            "a workflow's steps have `set`: --set changes jobs that are given by their files", param_hint="--set"
        )
    if params and not single:
        raise typer.BadParameter("only a workflow file has [params]", param_hint="--param")
    workflow = (
        load(paths[0], commands(line.commands()), params) if single else of_jobs(paths, overrides, commands(line.commands()))
    )
    options.selection.check(workflow)
    for problem in workflow.warnings:
        print_wrapped(problem.render(), stream=sys.stderr)
    folder = out or Path("runs") / workflow.name
    if out is None and not single and len(paths) == 1 and not paths[0].is_dir():  # a job with a sweep
        folder = Path("runs") / paths[0].stem / "sweep"
    digests = Digests(folder / "digests.json")
    results = Results(workflow, folder, digests)
    if dry_run:
        rows = list(preview(workflow, results, options.selection))
        digests.save() if folder.exists() else None
        if as_json:
            print(
                json.dumps(
                    {"folder": str(folder), "steps": [dict(zip(("step", "action", "reason"), row, strict=True)) for row in rows]}
                )
            )
        else:
            from partrain.display.text_table import aligned

            print("\n".join(aligned([("step", "would", "because"), *folded(rows)])))
        return OK
    places = {"files": [os.path.relpath(path, folder) for path in paths], "absolute": [str(path.absolute()) for path in paths]}
    command = {**places, "set": list(overrides), "params": list(params)}
    return _run(workflow, results, options, command, quiet=quiet, as_json=as_json, single=single, invoke=line.main)


def resume_workflow(folder: Path, log: Sequence[str], *, quiet: bool, as_json: bool, line: CommandLine) -> int:
    """Run the workflow of a folder again, with the files given to its newest runner; return the exit code."""
    from partrain.workflow.lock import runner_of
    from partrain.workflow.runner import Options

    command = runner_of(folder)
    if not isinstance(command.get("files"), list):
        raise BadJob(f"{folder / RUNNER} does not name the files of the workflow: run them with --out {folder}")
    paths = [Path(os.path.relpath(folder / file)) for file in command["files"]]
    if not all(path.exists() for path in paths):  # only the folder was copied or moved
        paths = [Path(file) for file in command.get("absolute", paths)]
        if gone := next((path for path in paths if not path.exists()), None):
            raise InputMissing(
                f"{folder}: the workflow's file {gone} is gone: name its new place: partrain run FILE --out {folder}"
            )
    options = Options(log=tuple(log))
    return run_workflow(
        paths,
        folder,
        command.get("set", ()),
        options,
        params=command.get("params", ()),
        dry_run=False,
        quiet=quiet,
        as_json=as_json,
        line=line,
    )


def _run(
    workflow: Workflow,
    results: Results,
    options: Options,
    command: Mapping[str, Any],
    *,
    quiet: bool,
    as_json: bool,
    single: bool,
    invoke: Callable[[], None],
) -> int:
    from partrain.display.workflow_table import workflow_display
    from partrain.launch.folder.run_folder import stage_file
    from partrain.workflow.lock import held
    from partrain.workflow.runner import Runner

    started = time.monotonic()
    display = workflow_display(quiet=quiet or as_json)

    def rows(states: dict[str, StepState]) -> Any:
        return lambda: [row_of(state) for state in states.values()]

    with held(results.folder, command), _executor(options, invoke) as executor:
        if single:
            stage_file(results.folder / WORKFLOW, workflow.text)
        try:
            runner = Runner(
                workflow, results, options, executor,
                lambda states: display.update(rows(states)), lambda states: display.refresh(rows(states)),
            )  # fmt: skip
            code = runner.run()
        finally:
            display.close()
            results.save()
    _report(runner, results.folder, time.monotonic() - started, code, as_json=as_json, quiet=quiet)
    return code


def _executor(options: Options, invoke: Callable[[], None]) -> closing[Executor]:
    """Return the executor that starts the steps: this machine, or a cluster."""
    if options.cluster:
        from partrain.workflow.cluster import ClusterExecutor

        return closing(ClusterExecutor(options.cluster, options.jobs))
    from partrain.workflow.process import LocalExecutor

    return closing(LocalExecutor(invoke))


def row_of(state: StepState) -> StepRow:
    """Describe a step's state for the display."""
    from partrain.display.workflow_table import StepRow

    run, running = state.run, state.status == "running"
    progress, eta = "", None
    if run and (running or state.status == "stopped"):
        fraction = run.fraction()
        progress = f"round {run.round}" + (f", {fraction:.0%}" if fraction is not None else "")
        eta = run.eta(time.time()) if running else None
    seconds = boot_seconds() - state.started if running else state.seconds
    return StepRow(
        state.name, state.status, progress, seconds, eta, _device(state), run.merged("loss") if run else None, state.note
    )


def _device(state: StepState) -> str:
    if not state.resources or state.status != "running":
        return ""
    cores = f"{state.resources.cores} {plural('core', state.resources.cores)}"
    return " ".join([cores, *sorted(state.resources.devices), *([state.where] if state.where else [])])


def _report(runner: Runner, folder: Path, seconds: float, code: int, *, as_json: bool, quiet: bool) -> None:
    """Print the summary of a workflow's run."""
    states = list(runner.states.values())
    if as_json:
        steps = [
            {"step": state.name, "status": state.status, "note": state.note, "seconds": round(state.seconds, 3)}
            for state in states
        ]
        print(json.dumps({"folder": str(folder), "code": code, "seconds": round(seconds, 3), "steps": steps}))
        return
    from partrain.display.text_table import aligned
    from partrain.display.workflow_table import seconds_text

    _show_sweeps(runner, folder)
    ran = [state for state in states if state.started]
    if ran and not quiet:
        rows = [(state.name, state.status, seconds_text(state.seconds or None), state.note) for state in states]
        print("\n" + "\n".join(aligned([("step", "state", "time", "reason"), *rows])))
        _show_runs(runner, folder)
    counts = [
        f"{sum(state.status == status for state in states)} {status}"
        for status in dict.fromkeys(state.status for state in states)
    ]
    print(f"{folder}: {counted(len(states), 'step')} in {seconds_text(seconds)}: {', '.join(counts)}")
    if not ran and all(state.status == "unchanged" for state in states):
        print("nothing to do: no step and nothing that a step depends on has changed")
    for step in states:
        if step.status == "failed":
            print(f"partrain: error[step-failed]: {step.name}: {step.note}", file=sys.stderr)
    held = {state.name for state in states if state.status in ("waiting", "failed")}
    free = [
        state.name for state in states if state.status == "waiting" and not held & set(runner.workflow.steps[state.name].needs)
    ]
    if free and code not in (INTERRUPTED, TERMINATED):
        over = f"{free[0]} has not started, though it needs no failed step"
        print(f"{over}: partrain run --keep-going also runs such steps", file=sys.stderr)
    if code in (INTERRUPTED, TERMINATED):
        print(f"stopped; the same command continues, or: partrain resume {folder}", file=sys.stderr)


def _show_sweeps(runner: Runner, folder: Path) -> None:
    """Print the rankings of finished sweeps."""
    from partrain.display.text_table import terminal_width
    from partrain.workflow.sweep import SweepAction

    for step in runner.workflow.steps.values():
        if isinstance(step.action, SweepAction) and runner.states[step.name].status == "done":
            ranking = step.action.ranked(folder / step.name)
            print(f"\n{step.name}: {counted(len(ranking.rows), 'combination')}, {counted(len(step.action.trials), 'run')}")
            print("\n".join(ranking.lines(terminal_width())))
            if ranking.best:
                print(f"best: {ranking.best}")


def _show_runs(runner: Runner, folder: Path) -> None:
    """Print the tables of finished `compare` steps; without any, the table of the steps that trained if they learned the same."""
    from partrain.display.text_table import table, terminal_width, wrapped
    from partrain.record.result import course_of
    from partrain.record.run_folder import RunFolder
    from partrain.runs.comparing import ComparedRow, ComparedRuns, alike
    from partrain.workflow.actions import CommandAction, JobAction
    from partrain.workflow.sweep import SweepAction

    width, steps = terminal_width(), [step for step in runner.workflow.steps.values() if runner.states[step.name].settled]
    tables = {
        step.name: step.action.summary(folder / step.name).get("table")
        for step in steps
        if isinstance(step.action, CommandAction) and step.action.spec.words == ("compare",)
    }
    for name, shown in tables.items():
        if shown:
            print("\n".join(["", f"{name}:", *table(shown["head"], shown["rows"], width), *wrapped([shown["note"]], width)]))
    sweeps = {step.name for step in steps if isinstance(step.action, SweepAction)}
    every = runner.workflow.steps.values()  # a run that missed its target is also compared
    trained = [step.name for step in every if isinstance(step.action, JobAction) and step.name.partition("/")[0] not in sweeps]
    runs = [(name, RunFolder(folder / name)) for name in trained]
    rows = [ComparedRow(name, run.job, [run.summary], [course_of(run.events())]) for name, run in runs if run.summary]
    if len(rows) > 1 and not tables and alike([row.job for row in rows]):
        print("\n".join(["", *ComparedRuns(rows).ranked.lines(width)]))


@app.command(epilog=examples("partrain flow show jobs/workflows/wine.toml"))
def show(
    context: typer.Context,
    file: StudyFile,
    out: StudyFolder = None,
    *,
    param: Params = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph as a Mermaid diagram.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the steps of a workflow as a tree, each with its state."""
    from partrain.workflow.graph import as_document, as_mermaid, as_tree

    workflow, results = _study(context, file, out, param)
    if as_json:
        print(json.dumps(as_document(workflow, results)))
    else:
        print("\n".join(as_mermaid(workflow) if mermaid else as_tree(workflow, results)))


@app.command(epilog=examples("partrain flow check jobs/workflows/wine.toml"))
def check(
    context: typer.Context,
    file: StudyFile,
    out: StudyFolder = None,
    *,
    param: Params = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that all results of a workflow are those of its files and settings as they are now. Exit 1 if a step would run."""
    from partrain.display.text_table import aligned
    from partrain.workflow.plan import Selection, folded, preview

    workflow, results = _study(context, file, out, param)
    rows = list(preview(workflow, results, Selection()))
    stale = [row for row in rows if row[1] not in ("skip", "skipped")]
    if as_json:
        print(json.dumps({"folder": str(results.folder), "stale": {name: reason for name, _, reason in stale}}))
    elif stale:
        print("\n".join(aligned([("step", "would", "because"), *folded(stale)])))
    else:
        print(f"{results.folder}: {counted(len(rows), 'step')}, all up to date")
    raise typer.Exit(NOT_REACHED if stale else OK)


def _study(context: typer.Context, file: Path, out: Path | None, params: Sequence[str] | None) -> tuple[Workflow, Results]:
    """Load a workflow, and the results in its folder."""
    from partrain.workflow.digests import Digests
    from partrain.workflow.kinds import is_job
    from partrain.workflow.load import load
    from partrain.workflow.results import Results

    if file.is_dir():
        raise InputMissing(f"{file} is a folder; give the file of the workflow, and --out for its folder")
    if is_job(file):
        raise InputMissing(f"{file} is a job, not a workflow")
    workflow = load(file, commands(context.obj.commands()), params or ())
    folder = out or Path("runs") / workflow.name
    return workflow, Results(workflow, folder, Digests(folder / "digests.json"))
