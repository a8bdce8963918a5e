"""Graphs for empty batches: operators of onnxruntime and torch fail on them, some by ending the process.

ONNX            an empty batch gets a row of zeros at the entrance of the graph, and its answers are cut off at the end
torch-export    such a row is appended to every batch, but only if the module itself fails on an empty one: the graph cannot
                distinguish empty batches, as torch assumes two items or more if their number may vary
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


@contextmanager
def spare_row(module: nn.Module) -> Iterator[None]:
    """Make a module compute with one row more than its input and output have, within this context."""
    hooks = (
        module.register_forward_pre_hook(
            lambda _, args, kwargs: tree_map_only(Tensor, _longer, (args, kwargs)), with_kwargs=True
        ),
        module.register_forward_hook(lambda _, __, answers: tree_map_only(Tensor, lambda rows: rows[:-1], answers)),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _longer(rows: Tensor) -> Tensor:
    """Return the rows with a spare row appended."""
    spare = _spare(rows.dim(), whole=rows.dtype == torch.int64)
    return nn.functional.pad(rows, (0, 0) * (rows.dim() - 1) + (0, 1), value=spare)


def _spare(dimensions: int, *, whole: bool) -> int:
    """Return the number that fills a spare row. A single whole number for each item is a length, of at least 1."""
    return int(whole and dimensions == 1)


def never_empty(graph: Any) -> None:
    """Make an `onnx.GraphProto` compute with one row if its inputs have none, in place."""
    from onnx import TensorProto, helper

    def constant(name: str, values: list[int], kind: int = TensorProto.INT64) -> None:
        graph.initializer.append(helper.make_tensor(name, kind, [len(values)], values))

    constant("rows.first", [0])
    constant("rows.one", [1])
    before = [helper.make_node("Shape", [graph.input[0].name], ["rows"], start=0, end=1)]
    before.append(helper.make_node("Max", ["rows", "rows.one"], ["rows.some"]))
    for value in graph.input:
        name, form = value.name, value.type.tensor_type
        constant(f"{name}.row", [1, *(size.dim_value for size in form.shape.dim[1:])])
        spare = _spare(len(form.shape.dim), whole=form.elem_type == TensorProto.INT64)
        constant(f"{name}.number", [spare], form.elem_type)
        before += [
            helper.make_node("Expand", [f"{name}.number", f"{name}.row"], [f"{name}.spare"]),
            helper.make_node("Concat", [name, f"{name}.spare"], [f"{name}.longer"], axis=0),
            helper.make_node("Slice", [f"{name}.longer", "rows.first", "rows.some", "rows.first"], [f"{name}.some"]),
        ]
    names = [output.name for output in graph.output]
    after = [helper.make_node("Slice", [f"{name}.some", "rows.first", "rows", "rows.first"], [name]) for name in names]
    _rename(graph, {value.name: f"{value.name}.some" for value in (*graph.input, *graph.output)})
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.value_info[:]  # their shapes contain the row count of the inputs
    graph.node.extend(nodes)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values in the nodes of a graph, and in nested graphs."""
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, names)
