"""The hook `mlflow`: a run of MLflow, in `RUN/mlruns` unless `MLFLOW_TRACKING_URI` names a server or a database.

MLflow keeps every row that it received, and shows the one with the highest step as the run's. So if a finished run continues from
an older checkpoint, it becomes another MLflow run, below the first: otherwise the abandoned rounds would be its numbers.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from itertools import takewhile

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # with 7, a run without a server waits for minutes at its end
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the other store without a server needs SQLAlchemy and 3 s to start

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from partrain.hooks import FollowedRun
from partrain.hooks.scalars import ScalarHook, flat, tags
from partrain.record.events import EndEvent, StartEvent, UnknownEvent
from partrain.record.run_folder import RunFolder
from partrain.record.run_state import COMPLETED, RunState

SEND_S = 1.0
"""Seconds between two batches of rows: a server answers one request for each."""
BATCH_METRICS, BATCH_PARAMS = 900, 100
"""Maximum numbers of metrics and parameters in a request: MLflow refuses more than 1,000 and 100."""
LONGEST_VALUE = 6000
"""Maximum number of characters of a parameter's value in MLflow."""
ID, PARENT = "partrain.id", "mlflow.parentRunId"
"""Tags for the identifier of the run folder, and for the parent run in MLflow."""


class MLflowHook(ScalarHook):
    """Logs to one run of MLflow, which a resumed run continues unless it abandons rounds.

    Its experiment is named after the job.
    """

    def __init__(self, run: FollowedRun) -> None:
        super().__init__()
        self._followed, self._metrics, self._sent, self._ended = run, list[Metric](), 0.0, False
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or (run.folder / "mlruns").as_uri())
        self._experiment_id = self._experiment(
            os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(run.job.get("name", run.folder.name))
        )
        matches = self._client.search_runs([self._experiment_id], f"tags.`{ID}` = '{run.id}'", max_results=1)
        self.replay = not matches
        """MLflow does not know the run: log the rows of earlier sessions now."""
        self._begin(matches[0] if matches else self._new_run(run.started))
        before = self._run.data
        self._newest = before.metrics.get("round", 0.0) if before.tags.get("status", "running") != "running" else 0.0
        """The last round of an earlier session that has ended. After a kill the same rounds come again, with the same numbers."""

    def _begin(self, run: Run) -> None:
        self._run, self._id, self._params = run, run.info.run_id, dict(run.data.params)

    def _new_run(self, started: float, **texts: str) -> Run:
        texts[ID] = self._followed.id
        return self._client.create_run(self._experiment_id, int(started * 1000), texts, run_name=self._followed.folder.name)

    def start(self, event: StartEvent, state: RunState) -> None:
        """Log the job's keys as parameters. MLflow's parameters never change: a key that a resume changed becomes a tag."""
        if self._newest > (event.resumed_from or 0):
            self._newest = 0.0
            self._begin(self._new_run(time.time(), **{PARENT: self._id}))
            earlier = RunState()
            for past in takewhile(lambda past: past != event, RunFolder(self._followed.folder).events()):
                if not isinstance(past, UnknownEvent):
                    earlier.apply(past)
                    self.event(past, earlier)
        self._ended = False
        self._client.update_run(self._id, status="RUNNING")
        keys = {re.sub(r"[^\w.\- /:]", "_", key): str(value)[:LONGEST_VALUE] for key, value in flat(self._followed.job).items()}
        new = [Param(key, value) for key, value in keys.items() if key not in self._params]
        for first in range(0, len(new), BATCH_PARAMS):
            self._client.log_batch(self._id, params=new[first : first + BATCH_PARAMS])
        texts = tags(event) | {"status": "running", "folder": str(self._followed.folder)}
        texts |= {key: value for key, value in keys.items() if self._params.get(key, value) != value}
        self._params |= {param.key: param.value for param in new}
        self._tag(texts)

    def write(self, t: float, step: int, values: Mapping[str, float]) -> None:
        """Keep a row for the next batch; send the batch if it is time."""
        self._metrics += [Metric(name, value, int(t * 1000), step) for name, value in values.items()]
        if t - self._sent >= SEND_S or len(self._metrics) >= BATCH_METRICS:
            self._send(t)

    def end(self, event: EndEvent, state: RunState) -> None:
        """Log status and reason."""
        self._ended = True
        self._send(event.t)
        self._tag({"status": event.status, "reason": event.reason, "rounds": str(event.round)})
        killed = event.status == "stopped"
        self._client.set_terminated(
            self._id, "FINISHED" if event.status in COMPLETED else "KILLED" if killed else "FAILED", int(event.t * 1000)
        )

    def close(self) -> None:
        """Send the remaining rows of a killed run."""
        self._send(0.0)
        if not self._ended:
            self._client.set_terminated(self._id, "KILLED")

    def _send(self, t: float) -> None:
        metrics, self._metrics, self._sent = self._metrics, [], t
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def _tag(self, texts: Mapping[str, str]) -> None:
        self._client.log_batch(self._id, tags=[RunTag(name, text) for name, text in texts.items()])

    def _experiment(self, name: str) -> str:
        """Return the experiment's id; create it if it is new."""
        if (experiment := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run has created it meanwhile
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)
