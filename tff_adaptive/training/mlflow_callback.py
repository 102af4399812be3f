"""A run in MLflow: its parameters and, by round, its columns. MLflow is imported as a run begins.

Where it goes is MLflow's own to say: MLFLOW_TRACKING_URI, else ./mlruns; MLFLOW_EXPERIMENT_NAME,
else tff-adaptive.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive.training import callbacks, tracking

if TYPE_CHECKING:
  from tff_adaptive.training.loop import TrainingResult

_RUN_ID = 'tff_adaptive.run_id'


class MlflowCallback(tracking.Tracker):
  """Logs a run to MLflow; a resumed run goes on with the MLflow run that it began."""

  service = 'MLflow'

  def __init__(self, run_id: str, name: str, parameters: Mapping[str, Any]):
    """Says what is logged.

    Args:
      run_id: Identifies the run; a tag by which a resumed run finds what it logged before.
      name: The MLflow run's name.
      parameters: The run's parameters by name; None is left out.
    """
    super().__init__()
    self._run_id, self._name, self._parameters = run_id, name, parameters
    self._client: Any = None
    self._mlflow_id = ''

  def open(self, run: callbacks.RunInfo) -> None:
    """Finds the run that this one goes on with, or makes one."""
    os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
    import mlflow

    self._client = mlflow.MlflowClient()
    name = os.environ.get('MLFLOW_EXPERIMENT_NAME', tracking.PROJECT)
    found = self._client.get_experiment_by_name(name)
    experiment = found.experiment_id if found else self._client.create_experiment(name)
    known = self._client.search_runs([experiment], f"tags.`{_RUN_ID}` = '{self._run_id}'")
    if known:
      self._mlflow_id = known[0].info.run_id
      self._client.update_run(self._mlflow_id, status='RUNNING')
    else:
      tags = {_RUN_ID: self._run_id}
      made = self._client.create_run(experiment, tags=tags, run_name=self._name)
      self._mlflow_id = made.info.run_id
      params = [
        mlflow.entities.Param(key, str(value))
        for key, value in self._parameters.items()
        if value is not None
      ]
      self._client.log_batch(self._mlflow_id, params=params)
    del run

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs the columns of a round."""
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    metrics = [Metric(name, value, now, step) for name, value in values.items()]
    self._client.log_batch(self._mlflow_id, metrics=metrics)

  def finish(self, result: 'TrainingResult | None') -> None:
    """Ends the MLflow run as finished, killed (it can be resumed) or failed."""
    status = 'FAILED'
    if result is not None:
      status = 'FINISHED' if result.is_complete else 'KILLED'
    self._client.set_terminated(self._mlflow_id, status)
