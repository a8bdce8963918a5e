"""A model card in Markdown next to an export. It states the content of the checkpoint, and what the checkpoint does not know.

Headings: Mitchell, Wu, Zaldivar et al. Model Cards for Model Reporting. 2019. arXiv:1810.03993. The YAML header is Hugging
Face's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.checkpoint.manifest import StoredManifest, manifest_of
from partrain.config.overrides import toml_value
from partrain.config.python_objects import ARRAYS, FRAMES, PYTHON
from partrain.config.section import Section
from partrain.config.usercode import UserCode
from partrain.data.tables.dialect import USUAL, Dialect
from partrain.record.run_folder import RunFolder
from partrain.version import __version__

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.inference.deliver import Delivery
    from partrain.inference.network import TrainedNetwork

_LIBRARIES = {"onnx": "onnx", "torch-export": "pytorch", "state-dict": "pytorch", "safetensors": "pytorch"}
_LOADERS = {
    "onnx": 'onnxruntime.InferenceSession("{file}")',
    "torch-export": 'torch.export.load("{file}").module()',
    "state-dict": 'torch.load("{file}", weights_only=True)',
    "safetensors": 'safetensors.torch.load_file("{file}")',
}
_GRAPHS = {
    "onnx": (
        """import onnxruntime

graph = onnxruntime.InferenceSession("{file}")
facts = graph.get_modelmeta().custom_metadata_map["partrain"]""",
        "dict(zip([output.name for output in graph.get_outputs()], graph.run(None, inputs)))",
    ),
    "torch-export": (
        """import torch

extra = {{"partrain.json": ""}}
graph = torch.export.load("{file}", extra_files=extra).module()
facts = extra["partrain.json"]""",
        "{name: answer.detach().numpy() for name, answer in "
        "graph(**{name: torch.from_numpy(values) for name, values in inputs.items()}).items()}",
    ),
}
_READERS = {
    "numbers": 'lambda cell, _: float({"true": 1, "false": 0}.get(cell.lower(), cell or "nan"))',
    "dates": 'lambda cell, _: (np.datetime64(cell or "NaT", "s") - np.datetime64(0, "s")) / np.timedelta64(1, "s")',
    "words": "lambda cell, _: cell",
    "codes": "lambda cell, words: -2 if not cell else words.index(cell) if cell in words else -1",
}
"""Python code that converts a cell, by graph input; the second argument holds the words of a column."""
_ROW = """A row of a CSV file as inputs, and the answer to it{written}:

```python
import csv
import json

import numpy as np
{start}
readers = {{
{readers}
}}
with open("rows.csv", newline="") as file:
    row = next(csv.DictReader(file, delimiter="{separator}"))
inputs = {{}}
for name, form in json.loads(facts)["preprocessing"]["inputs"].items():
    cells = [readers[name](row[column], form.get("words", {{}}).get(column)) for column in form["columns"]]
    inputs[name] = np.array([cells], object if form["type"] == "string" else form["type"])
print({run})
```"""
_UNKNOWN = "The checkpoint holds nothing about this. Add it before others use the network."


def card(network: TrainedNetwork, content: Content, checkpoint: Path, made: Delivery) -> str:
    """Return the card of an export."""
    manifest, job = manifest_of(content), network.loaded.job
    parameters = sum(tensor.numel() for tensor in network.module.parameters())
    facts = {
        "task": network.kind.name,
        "network": f"`{_called(job.model)}`, {parameters:,} parameters in {str(network.dtype).removeprefix('torch.')}",
        "inputs and outputs": made.usage.rpartition("; ")[0],
        "rule": f"`{job.sync.rule}` over {len(manifest.workers)} worker{'s' * (len(manifest.workers) > 1)}",
        "workers": "; ".join(f"{worker.rank}: {worker.device}, {_items(worker.partition)}" for worker in manifest.workers),
        "optimizer": f"`{job.optimizer.name}`",
        "rounds": f"{content.round:,}",
        "item-iterations": f"{manifest.progress.item_iterations:,}",
        "seed": "secret, as the noise follows from it" if job.sync.noise_multiplier else str(job.seed),
        "checkpoint": f"`{checkpoint.name}`{_standing(manifest)}, run {content.run}",
        "file": f"`{made.output.name}` ({made.format}), {len(made.data):,} bytes, SHA-256 {hashlib.sha256(made.data).hexdigest()}",
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items())) or "-",
        "exported by": f"partrain {__version__}",
    }
    if averaged := [f"{key} = {value:g}" for key in ("ema", "swa") if (value := getattr(job.sync, key)) is not None]:
        facts["parameters"] = f"an average over rounds: {averaged[0]}"
    if job.model.start_file is not None:
        facts["started from"] = f"`{job.model.start_file}`"
    repeated = ", an item of several workers counted for each" * (len(manifest.workers) > 1)
    data = {
        "source": f"`{_source(vars(job.dataset))}`",
        "digest": f"{manifest.data} (SHA-256 over content and codec)",
        "items": _all_items(manifest) + repeated,
        "shape of an item": _shape(manifest),
        **_codec_facts(network),
    }
    scores = _scores(manifest, content, checkpoint)
    parts = [
        _front_matter(network, made, manifest, scores),
        f"# {_plain(manifest.name)}",
        "## Model details\n\n" + _rows(facts),
        f"### How to load\n\n`{_LOADERS[made.format].format(file=made.output.name)}`\n\n{_sentence(made.usage)}{_row_of_a_table(network, made)}",
        f"## Intended use\n\n{_UNKNOWN}",
        f"## Factors\n\n{_UNKNOWN}",
        "## Metrics\n\n" + _metrics(network),
        "## Evaluation data\n\n" + _evaluated(network, manifest, scores),
        "## Training data\n\n" + _rows(data),
        "## Quantitative analyses\n\n" + _rows(scores),
        f"## Ethical considerations\n\n{_UNKNOWN}",
        "## Caveats and recommendations\n\n" + "\n".join(f"- {caveat}" for caveat in _caveats(network, made)),
    ]
    return "\n\n".join(parts) + "\n"


def _row_of_a_table(network: TrainedNetwork, made: Delivery) -> str:
    """Write lines of Python that read a row of a CSV file into the inputs of a graph; empty if items are not rows."""
    if not network.codec.is_table or "preprocessing" not in made.facts:
        return ""
    inputs = made.facts["preprocessing"]["inputs"]
    start, run = _GRAPHS[made.format]
    readers = "\n".join(f'    "{name}": {_READERS[name]},' for name in inputs)
    dialect = Dialect.of(network.loaded.job.dataset)
    unusual = {key: value for key, value in vars(dialect).items() if value != getattr(USUAL, key) and key != "separator"}
    keys = ", ".join(
        f"`{key}` {toml_value(list(value) if isinstance(value, tuple) else value)}" for key, value in unusual.items()
    )
    written = (
        f"\nin UTF-8, with numbers as 1234.5, dates as 2024-01-31, and nothing for a missing value (the data set has {keys})"
    )
    return "\n\n" + _ROW.format(
        start=start.format(file=made.output.name),
        readers=readers,
        run=run,
        written=written if unusual else "",
        separator=(dialect.separator or ",").replace("\t", "\\t"),
    )


def _front_matter(network: TrainedNetwork, made: Delivery, manifest: StoredManifest, scores: Mapping[str, str]) -> str:
    job = network.loaded.job
    tags = ["partrain", network.kind.name, _called(job.model), job.sync.rule]
    metrics = dict.fromkeys(
        ["loss", *(name.split(",")[0].split(" ", 1)[1] for name in scores if name.startswith(("judged", "test")))]
    )
    lines = [f"library_name: {_LIBRARIES[made.format]}", "tags:", *(f"- {_yaml(tag)}" for tag in tags)]
    lines += ["metrics:", *(f"- {metric}" for metric in metrics), f"model_name: {_yaml(manifest.name)}"]
    return "\n".join(["---", *lines, "---"])


def _items(count: int | None) -> str:
    return "a stream" if count is None else f"{count:,} items"


def _all_items(manifest: StoredManifest) -> str:
    counts = [worker.partition for worker in manifest.workers if worker.partition is not None]
    return (
        f"{sum(counts):,} in the partitions of all workers"
        if counts
        else "a stream of unknown length, one shard of it for each worker"
    )


def _standing(manifest: StoredManifest) -> str:
    """Compare the checkpoint's round with the best one."""
    progress = manifest.progress
    if progress.best is None:
        return ""
    return " (the best judged round)" if progress.best_round == progress.round else f" (round {progress.best_round} was the best)"


def _called(section: Section) -> str:
    """Name the network or task of a table for readers."""
    return section.called if isinstance(section, UserCode) else str(getattr(section, "name", ""))


def _source(table: Mapping[str, Any]) -> str:
    """Name the files of a data set as in the job: readers of a card do not have this machine's folders."""
    if (name := table.get("name")) in (PYTHON, ARRAYS, *FRAMES.values()):
        return {PYTHON: "a Python object", ARRAYS: "arrays in memory"}.get(str(name), "a DataFrame in memory")
    files = table.get("path") or table.get("inputs")
    if "name" in table or not files:
        return str(table.get("name") or table.get("kind"))
    return ", ".join(files if isinstance(files, list | tuple) else [str(files)])


def _scores(manifest: StoredManifest, content: Content, checkpoint: Path) -> dict[str, str]:
    """Return the results: the last judgement, the best one, and the results on test items from the run's summary.

    The summary of the run is used only for results of the same round.
    """
    progress, summary, scores = manifest.progress, RunFolder(checkpoint.parent).summary, dict[str, float]()
    last = summary if summary.get("rounds") == content.round else {}
    judged, best = progress.judged_round, _numbers_of(summary.get("best"), "round", progress.best_round)
    if judged and progress.loss is not None:
        numbers = {"loss": progress.loss} | ({} if progress.accuracy is None else {"accuracy": progress.accuracy})
        if judged == progress.best_round:
            numbers = best | numbers
        elif judged == content.round:
            numbers = _numbers_of(last, "rounds", judged) | numbers
        if judged == content.round and not summary.get("tested_round"):
            numbers = _compared(last) | numbers
        which = ", the best" * (judged == progress.best_round)
        scores |= {f"judged {name}, round {judged}{which}": value for name, value in numbers.items()}
    if progress.best is not None and progress.best_round != judged:
        numbers = best or {"result": progress.best}
        scores |= {f"judged {name}, round {progress.best_round}, the best": value for name, value in numbers.items()}
    tested = summary.get("test") if summary.get("tested_round") == content.round else {}
    for name, value in ({**tested, **_compared(summary)} if isinstance(tested, Mapping) and tested else {}).items():
        if isinstance(value, int | float):
            scores[f"test {name}, round {content.round}"] = value
    losses = content.arrays.get("history/loss")
    if losses is not None and len(losses) and np.isfinite(losses[-1]):
        scores[f"training loss, round {content.round}"] = float(losses[-1])
    return {name: f"{value:.6g}" for name, value in scores.items()}


def _compared(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the network's numbers that a summary compares with trivial answers: all comparisons have the same ones."""
    beside: Mapping[str, Any] = next(iter(summary.get("comparisons", {}).values()), {})
    return {name: beside[key] for name, key in ((str(beside.get("by")), "network"), ("r2", "r2")) if key in beside}


def _numbers_of(table: Any, key: str, round_number: int) -> dict[str, float]:
    """Return loss and metrics of a judgement from a summary; empty unless it is of this round."""
    if not isinstance(table, Mapping) or table.get(key) != round_number:
        return {}
    metrics = table.get("metrics")
    numbers = {"loss": table.get("loss"), **(metrics if isinstance(metrics, Mapping) else {})}
    return {str(name): float(value) for name, value in numbers.items() if isinstance(value, int | float)}


def _metrics(network: TrainedNetwork) -> str:
    codec = network.codec
    accuracy = "; accuracy: the share of items whose likeliest class is right" if network.kind.one_class else ""
    text = f"loss: that of the task `{network.kind}`, mean over items{accuracy}."
    if codec.target_scale is not None and network.kind.targets:
        pairs = zip(codec.targets, codec.target_scale[1].tolist(), strict=False)
        deviations = ", ".join(f"`{name}` {deviation:.6g}" for name, deviation in pairs)
        what = "differences of the targets" if codec.lags else "targets" if codec.target_log is None else "asinh(target / median)"
        text += f" Losses are of standardized {what}; one unit is a standard deviation"
        text += f": {deviations}." if deviations else "."
    return f"{text} `partrain evaluate` gives more metrics."


def _evaluated(network: TrainedNetwork, manifest: StoredManifest, scores: Mapping[str, str]) -> str:
    lines = []
    if manifest.progress.judged_round:
        held_out = network.loaded.job.dataset.held_out
        count = f"{held_out:,} " if isinstance(held_out, int) and held_out else ""
        lines.append(
            f"Judged on {count or 'the '}items held out of training."
            if network.loaded.job.dataset.holds_out
            else "Judged during training; no items were held out."
        )
    if any(name.startswith("test") for name in scores):
        lines.append("Tested once, at the end of the run, on the test items of the same data set.")
    return " ".join(lines) or "The network was not evaluated."


def _codec_facts(network: TrainedNetwork) -> dict[str, str]:
    codec, facts = network.codec, dict[str, str]()
    columns = codec.stored.get("inputs") if codec.is_table else codec.columns
    if columns:
        facts["input columns"] = ", ".join(map(str, columns))
    for key, what in (
        ("one_hot", "one-hot columns"),
        ("categories", "columns of embeddings"),
        ("dates", "columns of dates"),
        ("texts", "columns of texts"),
    ):
        if names := codec.stored.get(key):
            facts[what] = ", ".join(names)
    if (missing := codec.stored.get("missing", "error")) != "error":
        ways = {"all columns": missing} if isinstance(missing, str) else missing
        facts["missing values"] = ", ".join(f"{'other columns' if name == '*' else name}: {how}" for name, how in ways.items())
    if codec.lags:
        facts["differences at lags"] = ", ".join(map(str, codec.lags))
    if codec.targets:
        facts["target columns"] = ", ".join(codec.targets)
    if codec.classes:
        facts["classes"] = ", ".join(codec.classes)
    return facts


def _caveats(network: TrainedNetwork, made: Delivery) -> list[str]:
    codec, job, caveats = network.codec, network.loaded.job, list[str]()
    if "preprocessing" in made.facts:
        caveats.append(
            "The graph refuses nothing. An item with a missing value that is not filled in, or with a number that is too large, "
            "gets NaN" + (" and the label -1." if network.kind.one_class else ".")
        )
    else:
        caveats.append(f"The file holds the network alone. {_sentence(made.usage)}")
    if codec.is_table and (words := [*codec.stored.get("one_hot", ()), *codec.stored.get("categories", ())]):
        caveats.append(f"Words that it was not trained on are all alike to it, in {', '.join(words)}.")
    if codec.resizes:
        caveats.append("Images must have the size of its items. In training Pillow resized them (bilinear).")
    objects = [
        section for section in (job.model, job.dataset, job.task) if isinstance(section, UserCode) and section.name == PYTHON
    ]
    if code := [*(name for name in job.user_code if name != PYTHON), *map(_called, objects)]:
        caveats.append(f"Its job names code of the user: {', '.join(code)}.")
    caveats.append("The network has never seen numbers far from the training items.")
    return caveats


def _shape(manifest: StoredManifest) -> str:
    shape, vocabulary = tuple(manifest.network.input), manifest.network.vocabulary
    return f"{shape}" + (f", tokens below {vocabulary:,}" if vocabulary is not None else "")


def _rows(facts: Mapping[str, str]) -> str:
    """Render a table of two columns."""
    rows = [f"| {_plain(name)} | {_plain(value)} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else "None."


def _plain(text: str) -> str:
    """Return a text without line ends, table cell ends or HTML tags."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _yaml(text: str) -> str:
    return json.dumps(text)
