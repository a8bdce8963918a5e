"""A CUDA device that is only pretended: memory of the CPU that is said to lie on `cuda:0`, and torch's rules about devices.

What a thread does under `Pretence.on()` goes through two modes. The one sees calls of torch as they are written, and so what is
asked to be on a device; the other sees each operation, those of the backward pass too, and raises as torch would where devices
meet that must not. Numbers stay real, so all that is computed has the bits of the CPU. What this cannot show is whatever a device
does by itself: its kernels, its streams, its memory's limits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MOVES = {"copy_", "_to_copy", "_foreach_copy_"}
"""Operations between devices."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""x[indices], where the indices may lie on the CPU."""


@dataclass(frozen=True)
class Copy:
    """Numbers that went from one kind of memory to the other."""

    to_device: bool
    bytes: int
    pinned: bool
    """Whether the CPU's side is page-locked."""


class Pretence:
    """What lies on the device, and what happened there."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.pinned_bytes: list[int] = []
        """Of each page-locked buffer."""
        self.seconds = 0.0
        """A second for each time that somebody waited for work that was under way."""
        self.busy = False
        """Work was given to the device that nobody has waited for."""
        self.free = 1 << 40
        """Bytes of its memory that nobody uses, whatever is put there."""
        self.inside = False
        """In a call that makes tensors of its own, where those that it is given lie."""
        self._there: dict[int, torch.UntypedStorage] = {}  # kept, so that no other storage gets the same address
        self._pinned: dict[int, torch.UntypedStorage] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """In this thread, for a while."""
        with ExitStack() as stack:
            stack.enter_context(_Operations(self))
            stack.enter_context(_Calls(self))
            yield

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator[Pretence]:
        """A device in place of what a build of torch without CUDA lacks; afterwards torch is as it was."""
        pretence, attention = cls(), torch.backends.cuda
        threads, settings = torch.get_num_threads(), torch.utils.deterministic
        sorts = [(kind, getattr(attention, f"{kind}_sdp_enabled")()) for kind in ("flash", "mem_efficient", "cudnn")]
        precisions = [(kind, kind.fp32_precision) for kind in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn)]
        with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            patch.setattr(torch.cuda, "init", lambda: None)
            patch.setattr(torch.cuda, "set_device", lambda device: None)
            patch.setattr(torch.cuda, "synchronize", pretence.wait)
            patch.setattr(torch.cuda, "mem_get_info", lambda device: (pretence.free, pretence.free))
            patch.setattr(torch.cuda, "default_generators", (torch.Generator(),))
            patch.setattr(torch.backends.cudnn, "is_acceptable", lambda x: False)
            patch.setattr("partrain.job.checks.cuda_count", lambda: 1)
            patch.setattr("partrain.job.workers.cuda_count", lambda: 1)
            patch.setattr(torch.backends.cudnn, "deterministic", torch.backends.cudnn.deterministic)
            patch.setattr(settings, "fill_uninitialized_memory", settings.fill_uninitialized_memory)
            patch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
            yield pretence
        torch.set_deterministic_debug_mode(0)
        torch.set_num_threads(threads)
        for kind, precision in precisions:
            kind.fp32_precision = precision
        for kind, enabled in sorts:
            getattr(attention, f"enable_{kind}_sdp")(enabled)

    def wait(self, device: Any = None) -> None:
        """As torch.cuda.synchronize."""
        self.seconds += self.busy
        self.busy = False

    def where(self, x: Tensor) -> torch.device:
        return CUDA if self.holds(x) else CPU

    def holds(self, x: Tensor) -> bool:
        return x.untyped_storage()._cdata in self._there

    def put(self, x: Tensor, device: torch.device) -> Tensor:
        """Say where x lies."""
        storage = x.untyped_storage()
        if device.type == "cuda":
            self._there[storage._cdata] = storage
        else:
            self._there.pop(storage._cdata, None)
        return x

    def pin(self, x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        self._pinned[storage._cdata] = storage
        self.pinned_bytes.append(x.nbytes)
        return x

    def note(self, target: Tensor, source: Tensor) -> None:
        """A copy between devices, or on one."""
        if self.holds(target) != self.holds(source):
            here = source if self.holds(target) else target
            pinned = here.untyped_storage()._cdata in self._pinned
            self.copies.append(Copy(self.holds(target), source.numel() * source.element_size(), pinned))


class _Calls(TorchFunctionMode):
    """Calls of torch: what is asked to be on a device, and what is asked of a tensor's device."""

    def __init__(self, pretence: Pretence) -> None:
        super().__init__()
        self._pretence = pretence
        where = pretence.where
        self._answers: dict[Any, Callable[..., Any]] = {
            torch.Tensor.device.__get__: where,
            torch.Tensor.is_cuda.__get__: lambda x: where(x) == CUDA,
            torch.Tensor.is_cpu.__get__: lambda x: where(x) == CPU,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, pretence = dict(kwargs or {}), self._pretence
        if func in self._answers:
            return self._answers[func](args[0])
        if func in (torch.Tensor.numpy, torch.Tensor.__array__) and pretence.holds(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        if func in (torch.Tensor.cpu, torch.Tensor.cuda):
            return self._moved(torch.Tensor.to, (args[0], func.__name__), {})
        if func is torch.Tensor.to:
            return self._moved(func, args, kwargs)
        device, pinned = kwargs.get("device"), kwargs.pop("pin_memory", False)
        if device is not None:
            kwargs["device"] = CPU
        elif func is torch.Tensor.new_tensor:
            device = pretence.where(args[0])
        if func is scaled_dot_product_attention:
            pretence.inside = pretence.holds(args[0])
        result = func(*args, **kwargs)
        pretence.inside = False
        if device is not None:
            pretence.put(result, torch.device(device))
        return pretence.pin(result) if pinned else result

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """`x.to(...)`, where what is asked for may be a device, or that of another tensor."""
        x: Tensor = args[0]
        wanted = source = self._pretence.where(x)
        for one in (*args[1:], *kwargs.values()):
            if isinstance(one, Tensor):
                wanted = self._pretence.where(one)
            elif isinstance(one, str | torch.device):
                wanted = torch.device(one)
        plain = [CPU if isinstance(one, str | torch.device) else one for one in args]
        result: Tensor = func(*plain, **{key: CPU if key == "device" else one for key, one in kwargs.items()})
        if wanted.type == source.type:
            return result
        result = self._pretence.put(result.clone(), wanted)
        self._pretence.note(result, x)
        return result


class _Operations(TorchDispatchMode):
    """Operations: which devices meet in them, and where their results lie."""

    def __init__(self, pretence: Pretence) -> None:
        super().__init__()
        self._pretence = pretence

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here: its import would cost more than all tests of this kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            kwargs, pretence = kwargs or {}, self._pretence
            given = _tensors((args, kwargs))
            there = [x for x in given if pretence.holds(x)]
            if len(there) not in (0, len(given)):
                self._meet(func, args, given)
            if func.overloadpacket.__name__ == "copy_":
                pretence.note(args[0], args[1])
            result = func(*args, **kwargs)
            if there or (pretence.inside and not given):
                # A number that is read, or copied to other memory, has been waited for.
                pretence.busy = func.overloadpacket.__name__ not in ("_local_scalar_dense", *MOVES)
                known = {x.untyped_storage()._cdata for x in given}
                for x in _tensors(result):
                    if x.untyped_storage()._cdata not in known:
                        pretence.put(x, CUDA)
            return result

    def _meet(self, func: Any, args: Any, given: list[Tensor]) -> None:
        """Raises where torch would: tensors of both devices are given."""
        name, holds = func.overloadpacket.__name__, self._pretence.holds
        here = [x for x in given if not holds(x)]
        if name in MOVES:
            return
        if name in INDEXING:
            indices = {id(x) for x in _tensors(args[1])}
            fine = holds(args[0]) and all(id(x) in indices or x.dim() == 0 for x in here)
        else:
            numbers = torch.Tag.pointwise in func.tags or name.startswith("_foreach_")
            written = [
                x for one, x in zip(func._schema.arguments, args, strict=False) if one.alias_info and one.alias_info.is_write
            ]
            fine = numbers and all(x.dim() == 0 for x in here) and all(holds(x) for x in _tensors(written))
        if not fine:
            kinds = ", ".join(f"{'cuda:0' if holds(x) else 'cpu'} {tuple(x.shape)}" for x in given)
            raise RuntimeError(f"Expected all tensors to be on the same device ({name}: {kinds})")


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
