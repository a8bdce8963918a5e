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
from partrain.record.run_state import RunState


class PrometheusHook(Collector):
    """Serves the newest state. Numbers count from the beginning of the run, earlier sessions included.

    A thread answers requests. `lock` keeps it from reading a state that changes.
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
        yield _gauge("round", "Newest round that all workers have finished.", state.round)
        yield _gauge("learning_rate", "Learning rate of the newest round.", state.lr)
        yield _gauge("items_per_second", "Item-iterations per second of all workers lately.", state.rate())
        yield _gauge("train_loss", "Mean training loss of the newest round.", state.loss())
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
        labels = ["rank", "device"]
        items = CounterMetricFamily("partrain_item_iterations", "Item-iterations of a worker.", labels=labels)
        sent = CounterMetricFamily("partrain_bytes", "Bytes of the messages of a worker.", labels=labels)
        seconds = CounterMetricFamily("partrain_worker_seconds", "Seconds of a worker by activity.", labels=[*labels, "activity"])
        loss = GaugeMetricFamily("partrain_worker_loss", "Training loss of a worker, smoothed.", labels=labels)
        distance = GaugeMetricFamily("partrain_distance", "Distance of the replicas from their mean.", labels=labels)
        for rank, worker in sorted(self._state.workers.items()):
            key = [str(rank), worker.device]
            items.add_metric(key, worker.total.items)
            sent.add_metric(key, worker.bytes)
            for activity, spent in zip(("computing", "waiting", "mixing"), worker.total.spent, strict=True):
                seconds.add_metric([*key, activity], spent)
            for family, value in (loss, worker.loss), (distance, worker.distance):
                if value is not None:
                    family.add_metric(key, value)
        yield from (items, sent, seconds, loss, distance)


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    """Build a metric; one that is not known yet has no value."""
    return GaugeMetricFamily(f"partrain_{name}", text, value=value)
