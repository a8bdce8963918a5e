"""Graphs as bytes that are the same on every machine: without the exporting machine's paths, source lines and stack traces."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TRACES = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "custom")
"""Entries of torch's nodes that record their origin in the code."""


def onnx_bytes(model: Any) -> bytes:
    """Encode an `onnx.ModelProto`.

    torch notes the origin in the code for each node, and the types of initializers, which `quantize_dynamic` of onnxruntime
    contradicts.
    """
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        for value in (*getattr(graph, "input", ()), *getattr(graph, "output", ()), *graph.value_info):
            if not isinstance(value, str):  # a function's inputs are names
                del value.metadata_props[:]
    constants = {initializer.name for initializer in model.graph.initializer}
    for initializer in model.graph.initializer:
        del initializer.metadata_props[:]
    kept = [value for value in model.graph.value_info if value.name not in constants]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def torch_export_bytes(program: ExportedProgram, description: str) -> bytes:
    """Encode a program of torch.export, with the extra file `partrain.json`."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for name in TRACES:
                    node.meta.pop(name, None)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"partrain.json": description})
    return buffer.getvalue()
