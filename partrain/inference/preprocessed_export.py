"""`partrain export --with-preprocessing`: raw values in, answers of `predict` out. Compared with `predict` before writing.

In ONNX words are text, which the graph looks up, unless codes are requested: few runtimes have these operators. torch has no
text tensors: torch-export takes the indices of words, and the metadata lists the words.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from partrain.data.codec import Codec
from partrain.errors import CannotCreate
from partrain.inference.export import (
    COMPARED,
    GRAPHS,
    METADATA_PLACE,
    Format,
    any_number,
    for_empty_batches,
    metadata,
    onnx_session,
    require_onnx,
    silent,
    verify,
)
from partrain.inference.graph import Preprocessed
from partrain.inference.graph_bytes import onnx_bytes, torch_export_bytes
from partrain.inference.network import blame_user_code
from partrain.inference.onnx_text import as_text, class_names, words_for_codes
from partrain.inference.preprocessing import Preprocessing
from partrain.inference.spare_row import never_empty
from partrain.tasks.task import MultiLabel

if TYPE_CHECKING:
    from partrain.inference.predict import Columns

RawItems = dict[str, Tensor]
"""Raw values by the name of the graph's input."""
Graph = Callable[[RawItems], dict[str, Tensor]]


def export_preprocessed(recipe: Preprocessing, file_format: Format) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of the export with the preprocessing in its graph, and its comparison with the answers of `predict`.

    Raises:
        CannotCreate: the format holds tensors, not a graph.
    """
    if file_format not in GRAPHS:
        kinds = " or ".join(GRAPHS)
        raise CannotCreate(f"{file_format} holds tensors, no computation: --with-preprocessing needs {kinds}")
    if recipe.words_as == "text" and file_format != "onnx":
        raise CannotCreate(f"{file_format} has no tensors of text: leave --words out")
    network = recipe.network
    drawn, expected = recipe.sample(sum(COMPARED))
    raw = {name: torch.from_numpy(values) for name, values in drawn.items()}
    with silent(), blame_user_code(network.loaded):
        module = Preprocessed(recipe).eval()
        fewest, added = for_empty_batches(network, module, (), _arguments(recipe, _first_items(raw)), file_format)
        with added:
            data, run = (_onnx if file_format == "onnx" else _torch_export)(recipe, module, raw)
        counts = [count for count in COMPARED if count >= fewest]
        with torch.no_grad():
            parts = zip(*(torch.split(tensor, counts) for tensor in raw.values()), strict=True)
            results = [run(dict(zip(raw, part, strict=True))) for part in parts]
    threshold = network.task.threshold if isinstance(network.task, MultiLabel) else 0.5
    whole = {name: torch.cat([result[name] for result in results]) for name in recipe.outputs}
    newest = raw["inputs"][:, -1, [recipe.columns.index(name) for name in recipe.codec.targets]] if recipe.continues else None
    compared = difference(whole, expected, recipe.codec, newest, threshold)
    return data, verify(network, file_format, *compared) | {"fewest_items": fewest}


def difference(
    actual: Mapping[str, Tensor], expected: Columns, codec: Codec, newest: Tensor | None = None, threshold: float = 0.5
) -> tuple[float, float]:
    """Return the largest difference from the answers of `predict`, and the largest answer (at least 1).

    Answers in units are compared in standard deviations; answers that continue the `newest` values (n, targets), by their
    distance from these. A label may differ only if the two likeliest classes are equally likely, or if its probability is the
    `threshold`.
    """
    if "label" in actual:
        probabilities = torch.as_tensor(np.asarray(expected["probability"]))
        largest = _largest(actual["probabilities"], probabilities)
        ours = torch.as_tensor(np.asarray(expected["label"])).long()
        if ours.shape == probabilities.shape:  # each label is right or wrong
            gap = float(torch.where(ours == actual["label"], 0.0, (probabilities - threshold).abs()).max())
        else:
            chosen = probabilities.gather(1, actual["label"].clamp(0, probabilities.shape[1] - 1).unsqueeze(1))
            gap = float((probabilities.gather(1, ours.unsqueeze(1)) - chosen).abs().max())
        return max(largest, gap), 1.0
    name = "error" if "error" in actual else "answer"
    wanted = torch.as_tensor(np.asarray(expected[name])).double()
    had = actual["error" if name == "error" else "answers"].double()
    if newest is not None:
        newest = newest.repeat(1, wanted.shape[1] // newest.shape[1])
        had, wanted = had - newest, wanted - newest
    if name == "answer" and codec.target_scale is not None:
        if codec.target_log is not None:
            had, wanted = (torch.arcsinh(numbers / numbers.new_tensor(codec.target_log)) for numbers in (had, wanted))
        std = torch.from_numpy(np.tile(codec.target_scale[1], wanted.shape[1] // len(codec.target_scale[1])))
        had, wanted = had / std, wanted / std
    return _largest(had, wanted), max(1.0, float(wanted.abs().max()))


def _largest(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        return float("inf")
    largest = float((actual.double() - expected.double()).abs().max())
    return largest if largest == largest else float("inf")


def preprocessed_metadata(recipe: Preprocessing, file_format: Format) -> dict[str, Any]:
    """Describe a network that was exported with its preprocessing."""
    return metadata(recipe.network) | {"preprocessing": recipe.describe(strings=_has_text(recipe, file_format))}


def preprocessed_usage(recipe: Preprocessing, file_format: Format) -> str:
    """Describe in words the raw inputs and the outputs."""
    described = recipe.describe(strings=_has_text(recipe, file_format))
    inputs = [f"{name}: {form['type']} ({_extent(form)})" for name, form in described["inputs"].items()]
    how = ", by keyword" if file_format == "torch-export" else ""
    return f"inputs{how}: {', '.join(inputs)}; outputs: {', '.join(described['outputs'])}; {METADATA_PLACE[file_format]}"


def _has_text(recipe: Preprocessing, file_format: Format) -> bool:
    """Return whether the graph takes words and returns class names."""
    return file_format == "onnx" and recipe.words_as != "codes"


def _extent(described: Mapping[str, Any]) -> str:
    names = described.get("columns", [])
    shape = ", ".join(map(str, ("items", *described.get("shape", [len(names)]))))
    return shape + f": {', '.join(names[:6])}" * bool(names) + ", ..." * (len(names) > 6)


def _torch_export(recipe: Preprocessing, module: nn.Module, raw: RawItems) -> tuple[bytes, Graph]:
    """`raw`: items to trace the module with."""
    program = torch.export.export(module, (), _arguments(recipe, _first_items(raw)), dynamic_shapes=_dynamic(recipe, raw))
    data = torch_export_bytes(program, json.dumps(preprocessed_metadata(recipe, "torch-export"), sort_keys=True))
    loaded = torch.export.load(io.BytesIO(data)).module()
    return data, lambda part: loaded(**_arguments(recipe, part))


def _onnx(recipe: Preprocessing, module: nn.Module, raw: RawItems) -> tuple[bytes, Graph]:
    """`raw`: items to trace the module with."""
    require_onnx()
    program = torch.onnx.export(
        module, (), kwargs=_arguments(recipe, _first_items(raw)), dynamo=True, dynamic_shapes=_dynamic(recipe, raw),
        verbose=False, input_names=list(raw), output_names=recipe.outputs, external_data=False,
    )  # fmt: skip
    assert program is not None
    program.model.metadata_props["partrain"] = json.dumps(preprocessed_metadata(recipe, "onnx"), sort_keys=True)
    model = program.model_proto
    never_empty(model.graph)
    text = _has_text(recipe, "onnx")
    if text and recipe.words:
        words_for_codes(model, recipe.words)
    if text and recipe.network.kind.one_class and recipe.codec.classes:
        class_names(model, recipe.codec.classes)
    if recipe.network.dtype != torch.float64:
        _test_in_single(model.graph)
    data = onnx_bytes(model)
    session = onnx_session(data)

    def run(part: RawItems) -> dict[str, Tensor]:
        feed: dict[str, Any] = {name: tensor.numpy() for name, tensor in part.items()}
        if text and "codes" in feed:
            codes, words = feed.pop("codes"), list(recipe.words.values())
            texts = [as_text(words[at], code) for row in codes.tolist() for at, code in enumerate(row)]
            feed["words"] = np.array(texts, object).reshape(codes.shape)
        return {
            name: torch.from_numpy(np.ascontiguousarray(array))
            for name, array in zip(recipe.outputs, session.run(recipe.outputs, feed), strict=True)
        }

    return data, run


def _test_in_single(graph: Any) -> None:
    """Make IsNaN test numbers in single precision, in place: some runtimes support only this type."""
    from onnx import TensorProto, helper

    nodes = []
    for node in graph.node:
        if node.op_type == "IsNaN":
            nodes.append(helper.make_node("Cast", [node.input[0]], [f"{node.output[0]}.single"], to=TensorProto.FLOAT))
            node.input[0] = f"{node.output[0]}.single"
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _arguments(recipe: Preprocessing, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the module for its raw inputs.

    Several inputs form one dict: their names are the network's, and may be any.
    """
    return {"inputs": raw} if recipe.names else dict(raw)


def _dynamic(recipe: Preprocessing, raw: RawItems) -> dict[str, Any]:
    """Declare the first axis of each input as dynamic."""
    return _arguments(recipe, dict.fromkeys(raw, any_number()[0]))


def _first_items(raw: RawItems) -> RawItems:
    """Return two items, which an exporter traces."""
    return {name: tensor[:2] for name, tensor in raw.items()}
