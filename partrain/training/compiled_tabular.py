"""Training of the network `tabular` by C code (`tabular.c`): the forward pass in one call, and the backward pass in another.

torch calls about eighty operators for each mini-batch, and most of them move numbers rather than multiply them. The C code fuses these
operators, and takes a few items at a time, so that their activations stay in the cache. torch computes the loss.

Symbols: b items, n columns, m members, k outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from partrain.flat import DEFINITIONS, trainable
from partrain.models.tabular import TabularModule
from partrain.optim.local import LocalOptimizer
from partrain.training.blas import code_and_product
from partrain.training.compiled_mlp import hooked
from partrain.training.compiled_step import CompiledStep, addresses

SOURCE = Path(__file__).with_name("tabular.c")
TILE_ROWS = 128
"""Approximate rows of activations in a tile: the fastest number of those tried."""


class _Parameter(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("gradient", ctypes.c_void_p)]


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class _Embedding(ctypes.Structure):
    _fields_ = [*_fields(ctypes.c_int64, "column", "rows", "width"), ("table", _Parameter)]


class _TabularBlock(ctypes.Structure):
    _fields_ = [
        *_fields(_Parameter, "norm_weight", "norm_bias", "weight1", "bias1", "weight2", "bias2"),
        *_fields(ctypes.c_void_p, "draws1", "draws2"),
        *_fields(ctypes.c_int64, "limit1", "limit2"),
        *_fields(ctypes.c_void_p, "in", "moments", "normal", "inner"),
    ]


class _TabularNetwork(ctypes.Structure):
    _fields_ = [
        ("gemm", ctypes.c_void_p),
        *_fields(ctypes.c_int64, "items", "columns"),
        ("inputs", ctypes.c_void_p),
        *_fields(ctypes.c_int64, "embedding_count", "plain_count"),
        *_fields(ctypes.c_void_p, "embeddings", "plain"),
        *_fields(ctypes.c_int64, "frequencies", "periodic", "features", "members", "width", "hidden", "blocks", "outputs"),
        *_fields(
            _Parameter, "frequency", "mix_weight", "mix_bias", "factors", "enter_weight", "enter_bias", "norm_weight", "norm_bias"
        ),
        *_fields(_Parameter, "last_weight", "last_bias", "straight"),
        *_fields(
            ctypes.c_void_p,
            "block",
            "numbers",
            "waves",
            "embedded",
            "feature",
            "entrance",
            "last_in",
            "last_moments",
            "last_normal",
            "answers",
            "delta",
        ),
        *_fields(ctypes.c_void_p, "wide", "narrow", "narrow2", "few", "few2"),
        ("tile", ctypes.c_int64),
    ]


class _DescribedTabular:
    """A network as `tabular.c` reads it: addresses of its parameters' present memory, and of memory for activations."""

    def __init__(self, module: TabularModule, gradients: Mapping[int, Tensor]) -> None:
        """Describe a network. `gradients`: memory for the gradient of each parameter, by the parameter's id; empty without training.

        Raises:
            CannotCompile: There is no C compiler, or torch has no BLAS library.
        """
        self._module, self.answers_per_item = module, module.answers_per_item
        self._dtype = module.enter.weight.dtype
        self._code, product = code_and_product(SOURCE, self._dtype)
        self._code.forward.restype = self._code.answer.restype = ctypes.c_int64
        layers: list[Any] = [block.layers for block in module.blocks]
        self._widths = module.enter.out_features, layers[0][1].out_features if layers else 0
        self._dropouts = [pair for block in layers for pair in zip((block[3], block[5]), reversed(self._widths), strict=True)]
        self._plain = (ctypes.c_int64 * len(module.plain))(*module.plain)
        waves = (0, 0) if module.periodic is None else (module.periodic.frequencies.shape[1], module.periodic.mix.out_features)
        self._embeddings = (_Embedding * len(module.coded))()
        self._blocks = (_TabularBlock * len(layers))()
        self._network = _TabularNetwork(
            gemm=product, blocks=len(layers), outputs=module.outputs, features=module.enter.in_features
        )
        network = self._network
        network.embedding_count, network.plain_count = len(module.coded), len(module.plain)
        network.embeddings, network.plain = ctypes.addressof(self._embeddings), ctypes.addressof(self._plain)
        network.frequencies, network.periodic = waves
        network.members, (network.width, network.hidden) = module.answers_per_item, self._widths
        network.block, network.columns = ctypes.addressof(self._blocks), len(module.plain) + len(module.coded)
        for description, column, embedding in zip(self._embeddings, module.coded, module.embeddings, strict=True):
            description.column, description.rows, description.width = column, *embedding.weight.shape  # type: ignore[misc]
        for description, dropout1, dropout2 in zip(self._blocks, self._dropouts[::2], self._dropouts[1::2], strict=True):
            description.limit1, description.limit2 = dropout1[0].limit, dropout2[0].limit
        for description, parameter in self._parameters():
            description.value = parameter.data_ptr()
            if gradients:
                description.gradient = gradients[id(parameter)].data_ptr()
        self._memory: dict[int, tuple[list[tuple[Any, str, int]], list[Tensor]]] = {}
        """Places of activations and their memory, by number of items."""

    def _fits(self, items: Tensor) -> bool:
        """Return whether C can read items (b, n)."""
        return items.dtype == self._dtype and items.dim() == 2 and items.shape[1] == self._network.columns and items.is_cpu

    def _make_room(self, items: int) -> None:
        """Point to memory for the activations of that many items, each array on its own cache lines: alignment changes rounding."""
        if self._network.items == items:
            return
        if items not in self._memory:
            if len(self._memory) > 1:  # full batches, and the last batch of a pass
                self._memory.clear()
            places = list(self._places(items))
            memory = [torch.empty(shape, dtype=self._dtype) for *_, shape in places]
            names = [(structure, name, room.data_ptr()) for (structure, name, _), room in zip(places, memory, strict=True)]
            self._memory[items] = names, memory
        for structure, name, address in self._memory[items][0]:
            setattr(structure, name, address)
        if self.answers_per_item == 1:
            self._network.entrance = self._network.feature
        self._network.items, self._network.tile = items, self._tile

    @property
    def _tile(self) -> int:
        return max(1, TILE_ROWS * torch.get_num_threads() // self.answers_per_item)

    def _places(self, items: int) -> Iterator[tuple[Any, str, tuple[int, ...]]]:
        """Yield the structure, the name in it and the shape of a batch's activations and of a tile's memory."""
        network, (width, hidden), members, tile = self._network, self._widths, self.answers_per_item, self._tile
        plain, rows, tile_rows = network.plain_count, items * members, tile * members
        for block in self._blocks:
            yield block, "in", (rows, width)
            yield block, "moments", (rows, 2)
            yield block, "normal", (rows, width)
            yield block, "inner", (rows, hidden)
        yield network, "numbers", (items, plain)
        yield network, "waves", (items, plain, 2 * network.frequencies)
        yield network, "embedded", (items, plain, network.periodic)
        yield network, "feature", (items, network.features)
        if members > 1:
            yield network, "entrance", (rows, network.features)
        yield network, "last_in", (rows, width)
        yield network, "last_moments", (rows, 2)
        yield network, "last_normal", (rows, width)
        yield network, "wide", (tile_rows, max(hidden, network.features))
        yield network, "narrow", (tile_rows, width)
        yield network, "narrow2", (tile_rows, width)
        yield network, "few", (tile, plain, network.periodic)
        yield network, "few2", (tile, plain, 2 * network.frequencies)

    def _parameters(self) -> Iterator[tuple[_Parameter, Tensor]]:
        """Yield each parameter's description and the parameter."""
        module, network = self._module, self._network
        for described, embedding in zip(self._embeddings, module.embeddings, strict=True):
            yield described.table, embedding.weight  # type: ignore[misc]
        layers: list[tuple[Any, Any, str]] = []
        for described, block in zip(self._blocks, module.blocks, strict=True):
            norm, first, _, _, second, _ = block.layers  # type: ignore[misc]
            layers += [(described, norm, "norm_{}"), (described, first, "{}1"), (described, second, "{}2")]
        norm, _, last = module.leave
        layers += [(network, module.enter, "enter_{}"), (network, norm, "norm_{}"), (network, last, "last_{}")]
        if module.periodic is not None:
            layers.append((network, module.periodic.mix, "mix_{}"))
            yield network.frequency, module.periodic.frequencies
        for described, layer, name in layers:
            for part in "weight", "bias":
                yield getattr(described, name.format(part)), getattr(layer, part)
        if module.factors is not None:
            yield network.factors, module.factors
        if module.straight is not None:
            yield network.straight, module.straight.weight


class CompiledTabular(_DescribedTabular):
    """The training of one network: answers, the gradient and, for some optimizers, the step."""

    def __init__(self, module: TabularModule, gradients: Mapping[int, Tensor], optimizer: LocalOptimizer) -> None:
        """Describe the network and its optimizer. `gradients`: as in the base class, in the order of the optimizer's parameters."""
        super().__init__(module, gradients)
        self.step = CompiledStep.of(self._code, optimizer, list(gradients.values()))
        """A step of the optimizer with the numbers in `gradients`; None if torch takes the steps."""

    @classmethod
    def of(cls, module: nn.Module, gradients: Sequence[Tensor], optimizer: LocalOptimizer) -> CompiledTabular | None:
        """Recognise the network `tabular` on the CPU, if it trains all parameters; return None for others. Raises CannotCompile."""
        network = tabular_of(module)
        trained = [id(parameter) for _, parameter in trainable(module)]
        if network is None or not gradients[0].is_cpu or sorted(map(id, network.parameters())) != sorted(trained):
            return None
        return cls(network, dict(zip(trained, gradients, strict=True)), optimizer)

    def __call__(self, items: Tensor) -> Tensor:
        """Compute the answers (b * m, k) to items (b, n) in training mode: a leaf of autograd's graph, for the loss.

        Raises:
            IndexError: A code is no category.
        """
        if not self._fits(items):
            return self._module(items)  # type: ignore[no-any-return]  # torch says what is wrong
        items = items.contiguous()
        self._make_room(len(items))
        draws = [dropout.draw((len(items), width), items.device) if dropout.limit else None for dropout, width in self._dropouts]
        for number, some in enumerate(draws):
            setattr(self._blocks[number // 2], ("draws1", "draws2")[number % 2], None if some is None else some.data_ptr())
        answers = torch.empty(len(items) * self.answers_per_item, self._network.outputs, dtype=self._dtype)
        self._network.inputs, self._network.answers = addresses(items, answers)
        if self._code.forward(ctypes.byref(self._network)):
            return self._module(items)  # type: ignore[no-any-return]  # torch says what is wrong
        self._used = items, draws
        return answers.requires_grad_()

    def backward(self, delta: Tensor) -> None:
        """Write the gradient of each parameter, from the loss's gradient by the newest answers (b * m, k)."""
        delta = delta.contiguous()
        self._network.delta = delta.data_ptr()
        self._code.backward(ctypes.byref(self._network))


class TabularAnswers(_DescribedTabular):
    """The answers of one network in evaluation mode."""

    @classmethod
    def of(cls, module: nn.Module) -> TabularAnswers | None:
        """Recognise the network `tabular` on the CPU; return None for others. Raises CannotCompile."""
        network = tabular_of(module)
        return None if network is None else cls(network, {})

    def __call__(self, items: Tensor) -> Tensor:
        """Compute the answers (b, k) to items (b, n)."""
        if not self._fits(items):
            return self._module(items)  # type: ignore[no-any-return]  # torch says what is wrong
        self._make_room(self._tile)
        items, members = items.contiguous(), self.answers_per_item
        answers = torch.empty(len(items) * members, self._network.outputs, dtype=self._dtype)
        places = map(ctypes.c_void_p, addresses(items, answers))
        if self._code.answer(ctypes.byref(self._network), next(places), ctypes.c_int64(len(items)), next(places)):
            return self._module(items)  # type: ignore[no-any-return]  # torch says what is wrong
        return answers if self._module.factors is None else answers.view(len(items), members, self._network.outputs).mean(1)


def tabular_of(module: nn.Module) -> TabularModule | None:
    """Return a network `tabular` on the CPU as it was built; None for others. Exact types only: a subclass may do anything."""
    if type(module) is not TabularModule or hooked(module):
        return None
    owned = [parameter for part in module.modules() for parameter in part._parameters.values() if parameter is not None]
    plain = all(x.is_cpu and x.dtype == owned[0].dtype and x.is_contiguous() for x in owned) and owned[0].dtype in DEFINITIONS
    if not plain or len({*map(id, owned)}) < len(owned):
        return None
    parts = *islice(module.modules(), 1, None), *(parameter.shape for parameter in owned), str(module)
    if _CHECKED.get(module) != parts and _as_built(module):
        _CHECKED[module] = parts
    return module if _CHECKED.get(module) == parts else None


_CHECKED: WeakKeyDictionary[nn.Module, tuple[Any, ...]] = WeakKeyDictionary()
"""The layers, shapes and settings of networks that are as they were built: each judgement asks again, and to build another takes milliseconds."""


def _as_built(module: TabularModule) -> bool:
    """Return whether the network still has the layers and shapes with which its settings build it: C reads what they promise."""
    with torch.random.fork_rng(devices=[]):  # on the device `meta`, torch would import its compiler for the draws
        built = TabularModule(*module.settings)
    sizes, own_sizes = ([parameter.shape for parameter in network.parameters()] for network in (built, module))
    return sizes == own_sizes and str(module) == str(built) and (module.coded, module.plain) == (built.coded, built.plain)
