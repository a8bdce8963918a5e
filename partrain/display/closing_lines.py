"""The last lines of a run, with commands to continue."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.number_format import counted, scores
from partrain.record.added_speed import least_worker
from partrain.record.file_names import BEST
from partrain.record.privacy import privacy_line
from partrain.record.result_lines import clients_line, result_lines
from partrain.record.run_state import COMPLETED
from partrain.record.stop_conditions import Standing, suggest_until
from partrain.record.waiting import cause, participation_of, shares_of


def closing_lines(
    content: Mapping[str, Any],
    folder: Path,
    checkpoint: Path | None,
    stop: Mapping[str, Any] | None = None,
    *,
    own_code: bool = False,
    spent: bool = False,
    until: Sequence[str] = (),
    trust_to_evaluate: bool = False,
    trust_to_resume: bool = False,
    remedy: str = "",
    language: bool = False,
    machines: int = 1,
    replicas: bool = False,
    simulated: bool = False,
) -> list[str]:
    """Return the last lines of a run: its end, results and folder, and commands to continue, ready to paste.

    `content` is the content of summary.json. `checkpoint` is the one to continue from; it is outside `folder` if a run resumed
    from there and added nothing. `stop` is the `[stop]` table. `own_code`: the network is user code. `spent`: the learning rate
    is 0, so continuing is useless. `until`: stop conditions that the user changed for a run that added nothing.
    `trust_to_evaluate`, `trust_to_resume`: the command needs `--trust-code`, as the user has no key that signs the run. `remedy`:
    advice about slow workers, if there are any. `language`: the network continues texts. `machines`: the machines that trained.
    `replicas`: a process has several workers, none of which can be left out alone. `simulated`: seconds are those of a simulated
    clock.
    """
    reason = f" ({content['reason']})" if content.get("reason") not in (None, content["status"]) else ""
    seconds = content["seconds"]["train"]
    clock = "simulated s" if simulated else "s"
    done = f"{counted(content['rounds'], 'round')}, {content['item_iterations']:,} item-iterations, {seconds:.1f} {clock} of training"
    lines = [f"{content['status']}{reason}: {done}"]
    judged = {"loss": content["loss"], **content["metrics"]}
    lines += _numbers_told(content)
    label = f"judged in round {content['judged_round']:,}" if "judged_round" in content else "judged"
    lines += [f"{label}: {shown}"] if (shown := scores(judged)) else []
    best = content.get("best")
    if best and best["round"] == content.get("judged_round", content["rounds"]):
        lines.append(f"best: round {best['round']:,}, the newest judged")
    elif best:
        kept = f" ({BEST}, the network of this run)" * (folder / BEST).exists()
        lines.append(f"best: round {best['round']:,}, {scores({'loss': best['loss'], **best['metrics']})}{kept}")
    if "unsaved_best" in content:
        lines.append(f"round {content['unsaved_best']:,} was judged better, but its network is not on disk")
    tested = f"test, round {content['tested_round']:,}" if "tested_round" in content else "test"
    lines += [f"{tested}: {shown}"] if (shown := scores(content["test"])) else []
    lines += result_lines(content, spent=spent)
    lines += _waiting(content, remedy)
    if participation_of(content["workers"]) is not None:
        shares = [worker.get("participation", 1.0) for worker in content["workers"]]
        lines.append(f"each worker trained in {_span(shares)} of the rounds")
    if "clients" in content:
        lines.append(clients_line(content["clients"], len(content["workers"])))
    if "privacy" in content:
        lines.append(privacy_line(content["privacy"]))
    if not replicas and (least := least_worker(content["workers"], seconds)):
        lines.append(least)
    if unlike := [worker["unevenness"] for worker in content["workers"] if "unevenness" in worker]:
        mean, most = sum(unlike) / len(unlike), max(unlike)
        lines.append(f"label skew of partitions: mean {mean:.0%}, max {most:.0%} (total variation distance)")
    lines.append(f"results: {shlex.quote(str(folder))}")
    if checkpoint is None:
        return lines
    inside = checkpoint.absolute().is_relative_to(folder.absolute())
    file, trust = shlex.quote(str(checkpoint)), " --trust-code"
    network = shlex.quote(str(folder)) if inside else file
    path = network + trust * (own_code and trust_to_evaluate)
    into = "" if inside else f" --out {shlex.quote(str(folder))}"
    lines += [] if inside else [f"nothing was added to {file}"]
    further = "".join(f" --until {shlex.quote(condition)}" for condition in until or _until(content, stop or {}))
    diverged = content["status"] == "diverged"  # it would diverge again
    over = content.get("course") == "past its best" and content["status"] in COMPLETED  # more rounds would not help
    starter = f"  # on {machines} machines, under torchrun or srun" if machines > 1 else ""
    onward = [] if spent or diverged or over else [f"  partrain resume {file}{trust * trust_to_resume}{into}{further}{starter}"]
    export = [] if own_code else [f"  partrain export {network} --format safetensors --output network.safetensors"]
    report = [f"  partrain report {shlex.quote(str(folder))}"]
    items = "--prompt TEXT" if language else "--input FILE"
    predict = [f"  partrain predict {path} {items}"] * (not diverged)
    held_out = best and content["status"] in COMPLETED and inside and "privacy" not in content
    refit = [f"  partrain refit {network}{trust * trust_to_resume}"] if held_out else []
    on = "" if content["loss"] is not None or content["test"] else " --input FILE"  # without items that were not trained on
    commands = [
        *predict,
        *refit,
        f"  partrain evaluate {network}{on}{trust * trust_to_evaluate}",
        *export,
        *report,
        f"  partrain inspect {file}",
        *onward,
    ]
    program = sys.argv[0]  # as it was typed
    if Path(program).name != "partrain" or shutil.which("partrain"):
        return [*lines, *commands]
    return [*lines, *(command.replace("partrain", shlex.quote(program), 1) for command in commands)]


def _numbers_told(content: Mapping[str, Any]) -> list[str]:
    """Return a line that counts exclusions, clipped updates and spikes; empty without any."""
    kinds = {
        "exclusions": ("worker", "left out of a mean"),
        "clipped_updates": ("update", "scaled down"),
        "spikes": ("spike", "of a loss"),
    }
    counts = [f"{counted(count, noun)} {what}" for key, (noun, what) in kinds.items() if (count := content.get(key))]
    return [f"numbers: {', '.join(counts)}; `partrain report` shows when"] if counts else []


def _waiting(content: Mapping[str, Any], remedy: str) -> list[str]:
    """Return lines with the share of the workers' time spent waiting for each other, and the cause; empty for one worker."""
    shares = [shares_of([worker])["wait"] for worker in content["workers"] if sum(worker["seconds"].values())]
    if len(shares) < 2:
        return []
    waiting = f"waiting for other workers: {_span(shares)} of each worker's time"
    return [waiting, *([f"limit: {text}"] if (text := cause(content, remedy)) else [])]


def _span(shares: Sequence[float]) -> str:
    """Return the smallest and the largest of some shares, in percent."""
    return " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))


def _until(content: Mapping[str, Any], stop: Mapping[str, Any]) -> list[str]:
    """Return `--until` arguments that let the run continue; empty if no stop condition ended it."""
    if content["status"] not in COMPLETED:
        return []
    at = Standing(
        content["rounds"],
        content["item_iterations"],
        content["seconds"]["train"],
        content.get("loss"),
        content.get("metrics", {}).get("accuracy"),
        metrics=content.get("metrics", {}),
    )
    return suggest_until(stop, content["status"], str(content.get("reason")), at)
