"""The call of a user's function after each judgement: its network is protected, its answer checked, its errors name it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from partrain.config import usercode
from partrain.errors import UserCodeFailed
from partrain.training.hooks import HookSection, Judgement
from partrain.training.stop import Progress

STOP = "stop"
"""Answer that ends the run, and key of a dict that ends it."""
_TAKEN = ("loss", "accuracy")


class AfterJudgement:
    """The user's function."""

    def __init__(self, section: HookSection, folder: Path) -> None:
        """Import the function. `folder` holds the job. Raises UserCodeFailed."""
        assert section.code
        self._where = f"[hooks] after_judgement: `{section.after_judgement}`"
        self._function: Callable[[Judgement], Any] = usercode.find("hooks", section.code, folder, "after_judgement")
        if not callable(self._function):
            raise UserCodeFailed(f"{self._where} is of type {type(self._function).__name__}, not a function")

    def call(self, progress: Progress, *, best: bool, module: nn.Module, dry_run: bool = False) -> tuple[dict[str, float], bool]:
        """Call the function on the newest judgement of `progress`. Return the numbers that it adds, and True if it asks to stop.

        Raises UserCodeFailed if the function fails, changes the network or returns anything else.
        """
        metrics = dict(getattr(progress, "metrics", {}))
        if progress.accuracy is not None:
            metrics["accuracy"] = progress.accuracy
        loss = math.nan if progress.loss is None else progress.loss
        judgement = Judgement(progress.round, progress.item_iterations, loss, progress.accuracy, metrics, best, module, dry_run)
        with self._unchanged(module), torch.no_grad():
            try:
                answer = self._function(judgement)
            except Exception as error:
                where = "tried before any worker starts" if dry_run else f"after round {progress.round}"
                first = (str(error).splitlines() or [""])[0]
                message = f"{self._where}, {where}: {type(error).__name__}" + f": {first}" * bool(first)
                raise UserCodeFailed(message, f"{usercode.frames(error)}{type(error).__name__}: {error}") from error
        return self._checked(answer, metrics)

    def _checked(self, answer: Any, metrics: Mapping[str, float]) -> tuple[dict[str, float], bool]:
        if answer is None or (isinstance(answer, str) and answer == STOP):
            return {}, answer is not None
        if not isinstance(answer, Mapping):
            expected = 'expected None, a dict of numbers, or "stop"'
            raise UserCodeFailed(f"{self._where} returned {type(answer).__name__} {str(answer)[:40]!r}; {expected}")
        numbers = dict(answer)
        asked = numbers.pop(STOP, False)
        if not isinstance(asked, bool):
            raise UserCodeFailed(f"{self._where} returned {asked!r} for `{STOP}`; expected True or False")
        return {name: self._number(name, value, metrics) for name, value in numbers.items()}, asked

    def _number(self, name: Any, value: Any, metrics: Mapping[str, float]) -> float:
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise UserCodeFailed(f"{self._where} returned a number under the key {name!r}; expected a printable name")
        if name in _TAKEN or name in metrics:
            raise UserCodeFailed(f"{self._where} returned a number `{name}`, which is judged already; give it another name")
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise UserCodeFailed(f"{self._where} returned {type(value).__name__} for `{name}`; expected a number") from None
        if not math.isfinite(number):
            raise UserCodeFailed(f"{self._where} returned {number} for `{name}`; leave out numbers that are not finite")
        return number

    @contextmanager
    def _unchanged(self, module: nn.Module) -> Iterator[None]:
        """Show the module in evaluation mode, and refuse any change of it: it is the network in training."""
        modes = [(part, part.training) for part in module.modules()]
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.eval()
        yield
        for part, training in modes:
            part.training = training
        after = module.state_dict()
        if changed := sorted(name for name in before if name not in after or not torch.equal(before[name], after[name])):
            raise UserCodeFailed(f"{self._where} changed `{changed[0]}` of the network, which it may only read")
