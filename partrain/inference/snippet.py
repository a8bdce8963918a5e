"""A short Python program that uses an exported network: raw values in, answers as `predict` gives them out. It needs no partrain."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy as np
from torch import Tensor

from partrain.byte_layout import LENGTHS
from partrain.data.tables.columns import DAY
from partrain.data.tables.differences import coefficients
from partrain.data.tables.files import MISSING as NO_VALUE
from partrain.inference.export import Format
from partrain.inference.network import TrainedNetwork
from partrain.inference.preprocess import GraphRecipe
from partrain.inference.snippet_several import arguments, array_text, example_of_several, prepare_several
from partrain.inference.table_graph import DAY_S, UNSEEN

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOADERS: dict[Format, str] = {
    "safetensors": """\
import torch
from safetensors.torch import load_file

module.load_state_dict(load_file({file}))  # module: your torch.nn.Module of the same architecture
module.eval()

def network(items):
    with torch.no_grad():
        return module({arguments}).numpy()
""",
    "state-dict": """\
import torch

module.load_state_dict(torch.load({file}, weights_only=True))  # module: your torch.nn.Module of the same architecture
module.eval()

def network(items):
    with torch.no_grad():
        return module({arguments}).numpy()
""",
    "torch-export": """\
import torch

program = torch.export.load({file}).module()

def network(items):
    with torch.no_grad():
        return program({arguments}).numpy()
""",
    "onnx": """\
import onnxruntime

session = onnxruntime.InferenceSession({file}, providers=["CPUExecutionProvider"])

def network(items):
    return session.run(None, {feed})[0]
""",
}
_DATES = """\
def date_parts(text, with_time):
    moment = datetime.fromisoformat(text)
    if moment.tzinfo:
        moment = moment.astimezone(timezone.utc)
    time = (moment.hour + moment.minute / 60 + moment.second / 3600) / 24
    shares = [(moment.timetuple().tm_yday - 1) / 365.25, moment.weekday() / 7] + [time] * with_time
    waves = [wave(2 * math.pi * share) for share in shares for wave in (math.sin, math.cos)]
    return [moment.toordinal() - 719163 + time * with_time] + waves
"""
_TABLE = """\
def prepare(rows):
    \"\"\"Convert rows, a dict of each, to items (n, features).\"\"\"
    items = []
    for row in rows:
        item = []
        for name in inputs:
            text = "" if row[name] is None else str(row[name]).strip()
            missing = text.lower() in {texts}
            if missing and name not in may_be_missing:
                raise ValueError(f"column {{name}}: no value")
            {branches}
        items.append(item)
    numbers = np.array(items, np.float64)
{fill}    return ((numbers - mean) / std).astype(np.float32){wide}
"""
_BRANCHES = {
    "one_hot": "item += [float(text == word) for word in one_hot[name]]",
    "categories": """\
words = categories[name]
item.append(0 if missing else words.index(text) + 2 if text in words else 1)  # 1: a word that was not trained on""",
    "dates": """\
parts = 7 if dates[name] else 5
item += [float("nan")] * parts if missing else date_parts(text, dates[name])""",
}
_NUMBER = """\
text = {"true": "1", "false": "0"}.get(text.lower(), text)
item.append(float("nan") if missing else float(text))"""
_CONTINUED = """\
def finish(answers, numbers):
    changes = (answers * target_std + target_mean).reshape(len(answers), -1, len(targets))
    values = [moment[:, targets] for moment in np.moveaxis(np.asarray(numbers, np.float64), 1, 0)]
    for step in range(changes.shape[1]):
        values.append(changes[:, step] - sum(weight * values[-back] for back, weight in weights.items()))
    return {"answers": np.concatenate(values[-changes.shape[1] :], 1)}
"""
_FINISH = {
    "classification": """\
def finish(logits):
    odds = np.exp(logits - logits.max(1, keepdims=True))
    label = logits.argmax(1)
    return {"probabilities": odds / odds.sum(1, keepdims=True), "label": label, "class": [classes[one] for one in label]}
""",
    "multi-label": """\
def finish(logits):
    probabilities = 1 / (1 + np.exp(-logits))
    return {"probabilities": probabilities, "label": (probabilities >= threshold).astype(int), "names": names}
""",
    "segmentation": """\
def finish(logits):
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return {"probabilities": odds / odds.sum(1, keepdims=True), "label": logits.argmax(1)}
""",
    "autoencoder": """\
def finish(answers, items):
    return {"error": ((answers.astype(float) - items) ** 2).reshape(len(items), -1).mean(1)}
""",
}


def snippet(network: TrainedNetwork, format: Format, path: Path) -> str:
    """Return a program for an export without its preprocessing. CannotCreate if the items are more than numbers and words."""
    recipe = GraphRecipe.of(network)
    codec, kind = recipe.codec, network.kind
    dated = "import math\nfrom datetime import datetime, timezone\n\n" if codec.stored.get("dates") else ""
    feed = "items" if recipe.names else '{"inputs": items}'
    loader = _LOADERS[format].format(file=_quoted(path), arguments=arguments(recipe), feed=feed)
    parts = [f"{dated}import numpy as np\n{loader}", *filter(str.strip, [_constants(recipe)])]
    prepare = prepare_several if recipe.names else _prepare_rows if codec.is_table else _prepare_numbers
    parts.append(prepare(recipe))
    units = " * target_std + target_mean" if codec.target_scale is not None else ""
    numbers = f'def finish(answers):\n    return {{"answers": answers.reshape(len(answers), -1){units}}}\n'
    parts.append(_CONTINUED if recipe.continues else _FINISH.get(kind, numbers))
    last = {"autoencoder": ", items"}.get(kind, ", raw" if recipe.continues else "")
    parts.append(f"raw = {_example(recipe)}\nitems = prepare(raw)\nprint(finish(network(items){last}))\n")
    return "\n\n".join(parts)


def _prepare_rows(recipe: GraphRecipe) -> str:
    """Return the function that converts rows of a table, with a branch for each kind of column that there is."""
    stored = recipe.codec.stored
    kinds = [kind for kind in _BRANCHES if stored.get(kind)]
    lines = []
    for at, kind in enumerate(kinds):
        lines += [f"{'elif' if at else 'if'} name in {kind}:", *_indented(_BRANCHES[kind])]
    assert recipe.table
    if recipe.table.numbers:
        lines += ["else:", *_indented(_NUMBER)] if kinds else _NUMBER.splitlines()
    if stored.get("missing_indicator"):
        lines += ["if name in missing_indicator:", "    item.append(float(missing))"]
    holes = any(map(recipe.table.schema.may_miss, recipe.table.schema.inputs))
    prepare = _TABLE.format(
        texts=repr(tuple(sorted(NO_VALUE))),
        branches=("\n" + " " * 12).join(lines),
        fill="    numbers = np.where(np.isnan(numbers), fill, numbers)\n" if holes else "",
        wide=".astype(np.float64)" if str(recipe.network.dtype) == "torch.float64" else "",
    )
    return f"{_DATES}\n\n{prepare}" if stored.get("dates") else prepare


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]


def _prepare_numbers(recipe: GraphRecipe) -> str:
    """Return the function that converts numbers which do not come from a table."""
    codec, bytes, vocabulary = recipe.codec, recipe.type == "uint8", recipe.network.record.vocabulary
    if vocabulary is not None:
        shape = ", ".join(map(str, ("n", *recipe.shape)))
        head = f'def prepare(tokens):\n    """Convert tokens ({shape}), whole numbers below {vocabulary}, to items."""\n'
        return f"{head}    return np.asarray(tokens).astype(np.int64)\n"
    steps = ["    numbers = np.asarray(numbers)"]
    if bytes:
        steps.append("    numbers = numbers.astype(np.float32) * np.float32(1 / 255)")
    steps += [f"    numbers = numbers[:, {lag}:] - numbers[:, :-{lag}]" for lag in codec.lags]
    if codec.lags and recipe.columns != codec.columns:
        steps.append(f"    numbers = numbers[:, :, {[recipe.columns.index(name) for name in codec.columns]}]")
    scaled = "numbers" if codec.scale is None else "((numbers - mean) / std)"
    steps.append(f"    return {scaled}.astype(np.{'float64' if str(recipe.network.dtype) == 'torch.float64' else 'float32'})")
    shape = ", ".join(map(str, ("n", *recipe.shape)))
    columns = f", columns {', '.join(recipe.columns)}" if codec.is_series else ""
    head = f'def prepare(numbers):\n    """Convert raw numbers ({shape}){" of 0 to 255" * bytes}{columns}, to items."""'
    return "\n".join((head, *steps)) + "\n"


def snippet_preprocessed(recipe: GraphRecipe, format: Format, path: Path) -> str:
    """Return a program for an export with its preprocessing."""
    described = recipe.describe(strings=format == "onnx")["inputs"]
    lines = []
    for name, tensor in _first_item(recipe).items():
        told = described["codes" if name == "codes" and format != "onnx" else {"codes": "words"}.get(name, name)]
        remark = f"  # columns: {', '.join(told['columns'])}" if "columns" in told else ""
        remark += f"; {told['unit']}" if "unit" in told else ""
        if name == "codes" and format == "onnx":
            lines.append(f'    "words": np.array({[_first_words(recipe)]!r}, object),{remark}')
        elif format == "onnx":
            lines.append(f'    "{name}": {array_text(tensor)},{remark}')
        else:
            lines.append(f'    "{name}": torch.from_numpy({array_text(tensor)}),{remark}')
    given = "items = {\n" + "\n".join(lines) + "\n}\n"
    if format == "onnx":
        load = f'session = onnxruntime.InferenceSession({_quoted(path)}, providers=["CPUExecutionProvider"])\n'
        call = "names = [one.name for one in session.get_outputs()]\nanswers = dict(zip(names, session.run(names, items)))\n"
        return f"import numpy as np\nimport onnxruntime\n\n{load}{given}{call}print(answers)\n"
    words = (
        f"words = {recipe.words!r}  # the codes are indices of these; -1: another word, -2: no value\n" if recipe.words else ""
    )
    names = f"classes = {_classes(recipe)!r}\n" if recipe.network.kind == "classification" else ""
    call = f"with torch.no_grad():\n    answers = torch.export.load({_quoted(path)}).module()({'inputs=' if recipe.names else '**'}items)\n"
    return f"import numpy as np\nimport torch\n\n{words}{names}{given}{call}print(answers)\n"


def _constants(recipe: GraphRecipe) -> str:
    """Return the numbers and names of the codec that the conversion needs, as Python."""
    codec, found = recipe.codec, dict[str, Any]()
    if recipe.table:
        found["inputs"] = codec.stored["inputs"]
        keys = ("one_hot", "categories", "dates", "missing_indicator")
        found |= {key: codec.stored[key] for key in keys if codec.stored.get(key)}
        found["may_be_missing"] = [name for name in found["inputs"] if recipe.table.schema.may_miss(name)]
        if found["may_be_missing"]:
            found["fill"] = codec.stored["fill"]
    if recipe.continues:
        found |= {"targets": [recipe.columns.index(name) for name in codec.targets], "weights": coefficients(codec.lags)}
    if codec.scale is not None:
        shape = (-1, *[1] * (len(recipe.network.record.input) - 1)) if codec.stored.get("axis") == 1 else (-1,)
        found |= {name: one.reshape(shape).tolist() for name, one in zip(("mean", "std"), codec.scale, strict=True)}
    if codec.target_scale is not None:
        copies = recipe.network.record.outputs // len(codec.target_scale[0])
        pair = zip(("target_mean", "target_std"), codec.target_scale, strict=True)
        found |= {name: np.tile(one, copies).tolist() for name, one in pair}
    if recipe.network.kind == "classification":
        found["classes"] = _classes(recipe)
    if recipe.network.kind == "multi-label":
        found["names"] = codec.names(recipe.network.record.outputs)
        found["threshold"] = getattr(recipe.network.task, "threshold", 0.5)
    return (
        "\n".join(f"{name} = {pformat(value, width=120, compact=True, sort_dicts=False)}" for name, value in found.items()) + "\n"
    )


def _classes(recipe: GraphRecipe) -> list[str]:
    return [recipe.codec.class_name(label) for label in range(recipe.network.record.outputs)]


def _example(recipe: GraphRecipe) -> str:
    """Return one raw item as Python."""
    raw = _first_item(recipe)
    if recipe.names:
        return example_of_several(recipe, raw)
    if recipe.table is None:
        return array_text(raw["inputs"])
    row: dict[str, Any] = dict(zip(recipe.table.numbers, raw["numbers"][0].tolist(), strict=True)) if "numbers" in raw else {}
    if "dates" in raw:
        moments = [(_EPOCH + timedelta(seconds=seconds)).date().isoformat() for seconds in raw["dates"][0].tolist()]
        row |= zip(recipe.table.dates, moments, strict=True)
    return f"[{row | dict(zip(recipe.words, _first_words(recipe), strict=True))!r}]"


def _first_words(recipe: GraphRecipe) -> list[str]:
    """Return a word of each column of words."""
    return [known[0] if known else "word" for known in recipe.words.values()]


def _first_item(recipe: GraphRecipe) -> dict[str, Tensor]:
    """Return a raw item of typical numbers: means, zeros, first words, one day."""
    import torch

    table, stored = recipe.table, recipe.codec.stored
    if table is None:
        found = {name: torch.zeros(1, *shape, dtype=getattr(torch, type)) for name, (type, shape) in recipe.raw.items()}
        for name in found.keys() & {one for one in recipe.names if one == LENGTHS or one.endswith(f"_{LENGTHS}")}:
            found[name] += 1
        return found
    raw = {}
    if table.numbers:
        at = [stored["features"].index(name) for name in table.numbers]
        raw["numbers"] = torch.tensor([[float(f"{stored['fill'][one]:.4g}") for one in at]], dtype=torch.float64)
    if table.dates:
        days = [round(stored["fill"][stored["features"].index(f"{name}:{DAY}")]) for name in table.dates]
        raw["dates"] = torch.tensor([[float(day * DAY_S) for day in days]], dtype=torch.float64)
    if table.words:
        codes = [0 if known else UNSEEN for known in table.words.values()]
        raw["codes"] = torch.tensor([codes], dtype=torch.int64)
    return raw


def _quoted(path: Path) -> str:
    return json.dumps(str(path))
