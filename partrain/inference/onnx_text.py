"""Text in an ONNX graph: words instead of codes as input, class names as output. `LabelEncoder` of ai.onnx.ml looks up both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from partrain.preprocess.cells import MISSING as NO_VALUE
from partrain.preprocess.words import MISSING, UNSEEN, places_of


def words_for_codes(model: Any, words: Mapping[str, Sequence[str]]) -> None:
    """Replace the input `codes` (n, c) int64 by `words` (n, c) of text, column by column, in place."""
    from onnx import TensorProto, helper

    graph = model.graph
    place = next(at for at, graph_input in enumerate(graph.input) if graph_input.name == "codes")
    rows = graph.input[place].type.tensor_type.shape.dim[0].dim_param or "items"
    graph.input[place].CopyFrom(helper.make_tensor_value_info("words", TensorProto.STRING, [rows, len(words)]))
    nodes = []
    empty = [text for small in sorted(NO_VALUE) for text in _spellings(small)]
    for at, column_words in enumerate(words.values()):
        graph.initializer.append(helper.make_tensor(f"words.column.{at}", TensorProto.INT64, [1], [at]))
        nodes.append(helper.make_node("Gather", ["words", f"words.column.{at}"], [f"words.{at}"], axis=1))
        places = places_of(column_words) | dict.fromkeys(empty, MISSING)
        table = {"keys_strings": list(places), "values_int64s": list(places.values()), "default_int64": UNSEEN}
        nodes.append(_lookup(f"words.{at}", f"codes.{at}", table))
    nodes.append(helper.make_node("Concat", [f"codes.{at}" for at in range(len(words))], ["codes"], axis=1))
    _put_first(graph, nodes)
    _use_ml(model)


def as_text(words: Sequence[str], code: int) -> str:
    """Return the word of a code; for UNSEEN, a word that is not among them."""
    if code == MISSING:
        return ""
    if code != UNSEEN:
        return words[code]
    text = "unseen"
    while text in words:
        text += "_"
    return text


def _spellings(small: str) -> list[str]:
    """Return a text in all combinations of lower and upper case."""
    return ["".join(letters) for letters in product(*(sorted({letter, letter.upper()}) for letter in small))]


def class_names(model: Any, classes: Sequence[str]) -> None:
    """Add the output `class` (n,) of text, the name of the `label`; "" for -1. In place."""
    from onnx import TensorProto, helper

    graph = model.graph
    rows = next(output for output in graph.output if output.name == "label").type.tensor_type.shape.dim[0].dim_param or "items"
    table = {"keys_int64s": list(range(len(classes))), "values_strings": list(classes), "default_string": ""}
    graph.node.append(_lookup("label", "class", table))
    graph.output.append(helper.make_tensor_value_info("class", TensorProto.STRING, [rows]))
    _use_ml(model)


def _lookup(source: str, target: str, table: Mapping[str, Any]) -> Any:
    from onnx import helper

    return helper.make_node("LabelEncoder", [source], [target], None, None, "ai.onnx.ml", **table)


def _put_first(graph: Any, nodes: Sequence[Any]) -> None:
    """Put nodes before the others: the nodes of a graph are in the order of their computation."""
    before = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *before])


def _use_ml(model: Any) -> None:
    from onnx import helper

    if not any(opset.domain == "ai.onnx.ml" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
