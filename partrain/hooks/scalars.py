"""Numbers of a run over item-iterations: the common part of the hooks that draw curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from partrain.config.overrides import flatten
from partrain.record.events import EndEvent, JudgementEvent, KnownEvent, RoundEvent, StartEvent
from partrain.record.round_record import NUMBERS, time_shares
from partrain.record.run_state import RunState

ROW_S = 0.1
"""Seconds between two rows of rounds: rounds may take milliseconds, and `events.jsonl` has all of them."""


class ScalarHook:
    """Base of hooks that write rows of numbers. The step of a row is the item-iterations of all workers; `round` is one of its numbers.

    Runs with other workers, or with other iterations per round, have comparable item-iterations, not comparable rounds.
    """

    def __init__(self) -> None:
        self._t = -math.inf
        self._round = 0

    def event(self, event: KnownEvent, state: RunState) -> None:
        """Write the row of a round, a judgement or the end."""
        match event:
            case StartEvent():
                self._round = state.round
                self.start(event, state)
            case RoundEvent():
                # the last worker's event: an earlier one would mix two rounds
                if self._round < state.round == event.record.round and event.t - self._t >= ROW_S:
                    self._row(event.t, state)
            case JudgementEvent():
                self.write(
                    event.t, event.item_iterations, _known({f"judged/{name}": value for name, value in event.scores.items()})
                )
            case EndEvent():
                if state.round > self._round:
                    self._row(event.t, state)
                if event.test:
                    self.write(
                        event.t, state.item_iterations, _known({f"test/{name}": value for name, value in event.test.items()})
                    )
                self.end(event, state)

    def _row(self, t: float, state: RunState) -> None:
        self._t, self._round = t, state.round
        self.write(t, state.item_iterations, scalars(state))

    def start(self, event: StartEvent, state: RunState) -> None:
        """Begin a session."""
        raise NotImplementedError

    def write(self, t: float, step: int, values: Mapping[str, float]) -> None:
        """Write a row. `t` is its Unix time, `step` its item-iterations."""
        raise NotImplementedError

    def end(self, event: EndEvent, state: RunState) -> None:
        """End a session."""
        raise NotImplementedError


def scalars(state: RunState) -> dict[str, float]:
    """Return the numbers of a run's newest round, as far as known."""
    values = {
        **{number.scalar: state.merged(name) for name, number in NUMBERS.items() if number.scalar},
        "items_per_second": state.rate(),
        "waiting_share": waiting_share(state),
        "round": state.round,
        "seconds": state.clock.train,
    }
    return _known(values)


def waiting_share(state: RunState) -> float | None:
    """Return the share of all workers' recent time spent waiting for each other."""
    recents = [recent for worker in state.workers.values() if (recent := worker.recent())]
    return time_shares(recent.spent for recent in recents).get("wait")


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}


def flat(job: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Flatten the tables of a job to dotted keys, in the form of `--set`. Lists of values become text."""
    return {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in flatten(job)}


def tags(event: StartEvent) -> dict[str, str]:
    """Return the tags of a run: texts to search by."""
    devices = Counter(worker["device"] for worker in event.workers)
    return {
        "rule": event.rule,
        "workers": ", ".join(f"{count} {device}" for device, count in devices.items()),
        "run_id": event.run_id,
        "partrain_version": event.version,
    }
