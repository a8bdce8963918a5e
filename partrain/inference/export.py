"""`partrain export`: a trained network in formats that other programs read. Each export is compared with the network before writing.

    safetensors     tensors by name, no code
    state-dict      tensors by name as `torch.save` writes them, for `torch.load(..., weights_only=True)`
    torch-export    the network as a graph, for `torch.export.load`; any number of items
    onnx            the network as a graph, for ONNX runtimes; any number of items

A network's inputs differ from the data set's files: numbers may be standardized, words are numbered. `metadata` describes the
conversion. It is stored as metadata `partrain` of safetensors and ONNX, and as the extra file `partrain.json` of torch-export. A
state dict cannot hold it. `preprocessed_export` puts the conversion into the graph instead. For the comparison, formats without
code are loaded into a second network of the same kind; the others run by themselves.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from importlib.util import find_spec
from itertools import permutations
from math import isfinite, isnan
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from partrain.byte_layout import input_names
from partrain.errors import BadCheckpoint, CannotCreate, InputMissing, Internal, UserCodeFailed
from partrain.inference.graph_bytes import onnx_bytes, torch_export_bytes
from partrain.inference.network import TrainedNetwork, blame_user_code
from partrain.inference.spare_row import never_empty, spare_row
from partrain.models.answers import random_items
from partrain.models.sections import START_KEYS
from partrain.seeds import derive

Format = Literal["safetensors", "state-dict", "torch-export", "onnx"]
Run = Callable[[Any], Tensor]
"""Inputs (n, *shape), or a tuple or dict of such, -> answers."""
GRAPHS: tuple[Format, ...] = ("onnx", "torch-export")
"""Formats that hold computation."""
COMPARED = (0, 1, 2, 7)
"""Number of items in each comparison: a graph that was traced with one number of items must accept others."""
TOLERANCES: dict[Format, float] = {"safetensors": 0.0, "state-dict": 0.0, "torch-export": 1e-6, "onnx": 1e-5}
"""Largest difference that another rounding order explains, relative to the largest answer (at least 1); in float32."""

METADATA_PLACE: dict[Format, str] = {
    "safetensors": "details are in its metadata `partrain`",
    "state-dict": "--json prints details",
    "torch-export": "details are in its extra file `partrain.json`",
    "onnx": "details are in its metadata `partrain`",
}
"""The place of `metadata`, as text for the user."""


ENDLESS = "the network answers with NaN or infinities, so an export cannot be compared with it; its weights may be too large"


def export(network: TrainedNetwork, file_format: Format) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of the export, and its verification: items compared, largest difference, tolerance."""
    samples = [_random_inputs(network, count) for count in COMPARED if count]
    with torch.no_grad(), blame_user_code(network.loaded):
        expected = [network.module(deepcopy(inputs)) for inputs in samples]  # a network may change its inputs in place
        again = [network.module(deepcopy(inputs)) for inputs in samples]
    if not all(isinstance(answer, Tensor) for answer in expected):
        raise UserCodeFailed("the network's answer is not a tensor, so an export cannot be compared with it")
    if not all(bool(answer.isfinite().all()) for answer in expected):
        raise BadCheckpoint(ENDLESS)
    if not all(torch.equal(*pair) for pair in zip(expected, again, strict=True)):
        raise UserCodeFailed("the network answers the same items differently each time, so an export cannot be compared with it")
    scale = max(1.0, max(float(answer.abs().max()) for answer in expected))
    with silent(), blame_user_code(network.loaded):
        fewest = 1
        added: AbstractContextManager[None] = nullcontext()
        if file_format in GRAPHS:
            _refuse_names(network, file_format)
            fewest, added = for_empty_batches(network, network.module, (samples[0],), {}, file_format)
        with added:
            data, run = _EXPORTERS[file_format](network)
        if not fewest:  # the network itself may reject an empty batch
            samples.append(_none_of(samples[0]))
            expected.append(expected[0][:0])
        with torch.no_grad():
            results = [run(deepcopy(inputs)) for inputs in samples]
    largest = max(_difference(*pair) for pair in zip(results, expected, strict=True))
    return data, verify(network, file_format, largest, scale) | ({"fewest_items": fewest} if file_format in GRAPHS else {})


def for_empty_batches(
    network: TrainedNetwork, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], file_format: Format
) -> tuple[int, AbstractContextManager[None]]:
    """Return the fewest items that a graph of a module answers, and the context to trace it in. `args`, `kwargs`: some items.

    The fewest are 0; but 1 if the module fails on an empty batch, and an extra row changes the network's answers to others.
    """
    if file_format == "onnx":
        return 0, nullcontext()
    with torch.no_grad():
        with suppress(Exception):
            module(*_none_of(args), **_none_of(kwargs))
            return 0, nullcontext()
        inputs = _random_inputs(network, max(COMPARED))
        alone = network.module(deepcopy(inputs))
        with spare_row(network.module):
            beside = network.module(inputs)
    mixes = _difference(beside, alone) > TOLERANCES[file_format] * max(1.0, float(alone.abs().max()))
    return int(mixes), nullcontext() if mixes else spare_row(module)


def _none_of(inputs: Any) -> Any:
    """Return empty inputs (0, ...) of the same form."""
    return tree_map(lambda rows: rows[:0], inputs)


def verify(network: TrainedNetwork, file_format: Format, largest: float, scale: float) -> dict[str, Any]:
    """Return the verification of an export; refuse an export with other answers."""
    tolerance = TOLERANCES[file_format] * scale
    if isnan(largest) or not isfinite(tolerance):
        raise BadCheckpoint(ENDLESS)
    if not largest <= tolerance:
        what = f"the {file_format} export gives other answers than the network: they differ by {largest:.3g}, more than {tolerance:.3g}"
        raise UserCodeFailed(f"{what}; nothing was written") if network.loaded.job.user_code else Internal(what)
    return {"items": sum(COMPARED), "largest_difference": largest, "tolerance": tolerance}


def metadata(network: TrainedNetwork) -> dict[str, Any]:
    """Describe the network: its model, inputs and outputs; in `codec`, the conversion of files into items."""
    model = network.loaded.job.model.model_dump(mode="json", exclude_none=True, exclude={"from", *START_KEYS})
    facts = network.record.model_dump(exclude=None if network.record.parts else {"parts"})
    return facts | {"model": model, "codec": network.codec.stored}


def usage(network: TrainedNetwork, file_format: Format) -> str:
    """Describe in words the network's inputs, and where to find the details."""
    codec = network.codec
    kind, how = (
        str(network.dtype).removeprefix("torch."),
        "bytes of images divided by 255" if len(network.record.input) == 3 else "",
    )
    if network.record.vocabulary is not None:
        kind, how = "int64", f"tokens below {network.record.vocabulary}"
    elif codec.scale is not None:
        of = "channel" if codec.stored.get("axis") == 1 else "feature" if codec.is_table else "column"
        how = f"(value - mean) / standard deviation of each {of}"
        if codec.lags:
            how = f"differences at lags {', '.join(map(str, codec.lags))}, then {how}"
    shape = ", ".join(map(str, ("items", *network.record.input)))
    if network.record.parts:
        parts = [
            f"{name} {part.dtype} {('items', *part.shape)}"
            for name, part in zip(input_names([part.name for part in network.record.parts]), network.record.parts, strict=True)
        ]
        return f"inputs: {', '.join(parts).replace(chr(39), '')}; {METADATA_PLACE[file_format]}"
    answers = "" if codec.target_scale is None or not network.kind.targets else "; its answers are also standardized"
    if answers and codec.lags:
        answers = "; its answers are also standardized differences: add them to the values before"
    if codec.target_log is not None and answers:
        answers = "; its answers are asinh(target / median), standardized: the metadata has the medians as `target_log`"
    return f"inputs: {kind} ({shape}){how and ': '}{how}{answers}; {METADATA_PLACE[file_format]}"


def _random_inputs(network: TrainedNetwork, count: int) -> Any:
    """Draw seeded items of the right shape and type."""
    return random_items(network.interface, count, network.dtype, derive(0, "export", count))


def _difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference: 0 if all bits are equal, infinite if shapes or types differ or a number is not finite."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if torch.equal(actual, expected):
        return 0.0
    largest = float((actual.double() - expected.double()).abs().max())
    return largest if largest == largest else float("inf")


def _safetensors(network: TrainedNetwork) -> tuple[bytes, Run]:
    from safetensors.torch import load, save

    # One copy of each tensor: the format refuses names that share memory.
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in network.module.state_dict().items()}
    metadata = {"format": "pt", "partrain": _metadata_text(network)}
    data = _with_metadata_in_order(save(copies, metadata), metadata)
    return data, _with_tensors(network, load(data))


def _with_metadata_in_order(data: bytes, metadata: dict[str, str]) -> bytes:
    """Return the same file with its metadata in order: safetensors writes them in varying order, so bytes would differ."""
    text = [
        json.dumps(pair, ensure_ascii=False, separators=(",", ":"))[1:-1].encode()
        for pair in ({key: value} for key, value in metadata.items())
    ]
    for order in permutations(text):
        prefix = b'{"__metadata__":{' + b",".join(order) + b"}"
        if data[8 : 8 + len(prefix)] == prefix:
            return data[:8] + b'{"__metadata__":{' + b",".join(text) + b"}" + data[8 + len(prefix) :]
    return data  # another version of safetensors may write its header in another form


def _state_dict(network: TrainedNetwork) -> tuple[bytes, Run]:
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().clone() for name, tensor in network.module.state_dict().items()}, buffer)
    buffer.seek(0)
    return buffer.getvalue(), _with_tensors(network, torch.load(buffer, weights_only=True))


def _metadata_text(network: TrainedNetwork) -> str:
    return json.dumps(metadata(network), sort_keys=True)


def _with_tensors(network: TrainedNetwork, tensors: dict[str, Tensor]) -> nn.Module:
    """Make a second network, set it to zero, and load the tensors that were read back."""
    module = deepcopy(network.module)
    with torch.no_grad():
        for tensor in module.state_dict(keep_vars=True).values():
            tensor.zero_()
    module.load_state_dict(tensors)
    return module.eval()


def _torch_export(network: TrainedNetwork) -> tuple[bytes, Run]:
    args, kwargs, shapes = _arguments(network, _random_inputs(network, 2))
    program = torch.export.export(network.module, args, kwargs, dynamic_shapes=shapes)
    data = torch_export_bytes(program, _metadata_text(network))
    module = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Any) -> Tensor:
        args, kwargs, _ = _arguments(network, inputs)
        answers: Tensor = module(*args, **kwargs)
        return answers

    return data, run


def require_onnx() -> None:
    for library in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(library) is None:
            raise InputMissing(f"export to ONNX needs {library}, which is not installed: pip install 'partrain[onnx]'")


def onnx_session(data: bytes) -> Any:
    """Load an ONNX graph into onnxruntime, with one thread and without its log."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _onnx(network: TrainedNetwork) -> tuple[bytes, Run]:
    require_onnx()
    args, kwargs, shapes = _arguments(network, _random_inputs(network, 2))
    names = input_names([part.name for part in network.record.parts]) or ["inputs"]
    program = torch.onnx.export(
        network.module, args, kwargs=kwargs or None, dynamo=True, dynamic_shapes=shapes, verbose=False,
        input_names=names, output_names=["answers"], external_data=False,
    )  # fmt: skip
    assert program is not None
    program.model.metadata_props["partrain"] = _metadata_text(network)
    model = program.model_proto
    never_empty(model.graph)
    data = onnx_bytes(model)
    session = onnx_session(data)

    def run(inputs: Any) -> Tensor:
        tensors = list(inputs.values()) if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]
        taken = {declared.name: tensor.numpy() for declared, tensor in zip(session.get_inputs(), tensors, strict=True)}
        (answers,) = session.run(None, taken)
        return torch.from_numpy(np.ascontiguousarray(answers))

    return data, run


def any_number() -> tuple[dict[int, Any]]:
    """Declare the first axis, the number of items, as dynamic."""
    return ({0: torch.export.Dim("items")},)


def _arguments(network: TrainedNetwork, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return the arguments of `forward` by position and by name, and their dynamic axes: the first axis, the number of items."""
    axis = {0: torch.export.Dim("items")}
    if isinstance(inputs, Tensor):
        return (inputs,), {}, (axis,)
    if isinstance(inputs, dict):
        return (), inputs, dict.fromkeys(inputs, axis)
    return inputs, {}, (axis,) * len(inputs)


def _refuse_names(network: TrainedNetwork, file_format: Format) -> None:
    """Raise CannotCreate if inputs have no names, or share names with layers, which torch's graphs confuse."""
    if network.record.parts and not network.module._forward_pre_hooks:
        what = f"`forward` takes all inputs as one dict or tuple, and {file_format} gives each a name"
        raise CannotCreate(f"{what}; let it have an argument for each input, or export safetensors or a state-dict")
    layers = network.module._modules
    if clash := [part.name for part in network.record.parts if part.name in layers]:
        what = f"the input `{clash[0]}` and the layer `self.{clash[0]}` have one name, which torch mixes up in {file_format}"
        raise CannotCreate(f"{what}; rename one of them, or export safetensors or a state-dict")


@contextmanager
def silent() -> Iterator[None]:
    """Silence the exporters, which print to stdout, log and warn."""
    from contextlib import redirect_stdout

    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


_EXPORTERS: dict[Format, Callable[[TrainedNetwork], tuple[bytes, Run]]] = {
    "safetensors": _safetensors,
    "state-dict": _state_dict,
    "torch-export": _torch_export,
    "onnx": _onnx,
}
