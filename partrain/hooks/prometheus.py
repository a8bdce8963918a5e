"""`--metrics-port`: the state of a run as Prometheus text, under `/metrics`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from threading import Lock, Thread

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from partrain.hooks.scalars import tags
from partrain.record.events import CommitEvent, KnownEvent, StartEvent
from partrain.record.numbers import DERIVED, Merge
from partrain.record.round_record import NUMBERS
from partrain.record.run_state import RunState


class PrometheusHook(Collector):
    """Serves the newest state. Numbers count from the beginning of the run, earlier sessions included.

    A thread answers requests. `lock` prevents it from reading a changing state.
    """

    replay = True

    def __init__(self, descriptor: int, state: RunState, lock: Lock) -> None:
        self._state, self._lock, self._commits, self._info = state, lock, 0, dict[str, str]()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        listening = socket.socket(fileno=descriptor)
        self._server = ThreadingHTTPServer(listening.getsockname()[:2], MetricsHandler.factory(registry), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        Thread(target=self._server.serve_forever, daemon=True).start()

    def event(self, event: KnownEvent, state: RunState) -> None:
        """Count commits; the rest is in the state."""
        if isinstance(event, CommitEvent):
            self._commits += 1
        elif isinstance(event, StartEvent):
            self._info = {"name": event.name, **tags(event)}

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def collect(self) -> Iterator[Metric]:
        """Return all metrics; prometheus_client calls this for each request."""
        with self._lock:
            yield from list(self._collect())

    def _collect(self) -> Iterator[Metric]:
        state = self._state
        yield InfoMetricFamily("partrain_run", "The run: job, rule, workers, version.", self._info)
        yield _gauge("round", DERIVED["round"], state.round)
        yield _gauge("items_per_second", DERIVED["items_per_second"], state.rate())
        for name, number in NUMBERS.items():
            if number.run_metric:
                yield _gauge(number.run_metric, f"{number.meaning} Newest round, all workers.", state.merged(name))
        judged = state.judged
        yield _gauge("judged_round", "Round of the newest judgement.", judged.round if judged else None)
        yield _gauge("judged_loss", "Loss of the mixed network on held-out items.", judged.loss if judged else None)
        metrics = GaugeMetricFamily("partrain_judged_metric", "Metric of the mixed network on held-out items.", labels=["metric"])
        for name, value in (judged.metrics if judged else {}).items():
            metrics.add_metric([name], value)
        yield metrics
        yield CounterMetricFamily("partrain_training_seconds", "Seconds of training.", state.clock.train)
        yield _gauge("last_event_timestamp_seconds", "Unix time of the newest event.", state.t)
        yield CounterMetricFamily("partrain_commits", "Checkpoints committed.", self._commits)
        yield _gauge("committed_round", "Round of the newest checkpoint.", state.commit.round if state.commit else None)
        yield CounterMetricFamily("partrain_faults", "Faults.", state.tallies["fault"].count)
        yield from self._workers()

    def _workers(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, number in NUMBERS.items():
            if not number.metric:
                continue
            family = families.get(number.metric)
            if family is None:
                kind = CounterMetricFamily if number.rounds is Merge.SUM else GaugeMetricFamily
                labels = ["rank", "device", *(["activity"] if number.activity else [])]
                meaning = "Seconds of a worker by activity." if number.activity else number.meaning
                family = families[number.metric] = kind(f"partrain_{number.metric}", meaning, labels=labels)
            for rank, worker in sorted(self._state.workers.items()):
                if (value := worker.numbers.get(name)) is not None:
                    family.add_metric([str(rank), worker.device, *([number.activity] if number.activity else [])], value)
        yield from families.values()


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    """Build a metric; an unknown one has no value."""
    return GaugeMetricFamily(f"partrain_{name}", text, value=value)
