"""Callbacks that log a run's parameters and its rows of metrics.csv to experiment trackers.

A tracker's library is imported when the run begins. Its own environment variables say where it
logs. MLflow reads MLFLOW_TRACKING_URI (default sqlite:///mlflow.db, a file in the current folder)
and MLFLOW_EXPERIMENT_NAME (default tff-adaptive). Weights & Biases reads WANDB_MODE (with offline
nothing is sent), WANDB_DIR, WANDB_ENTITY and WANDB_PROJECT (default tff-adaptive).
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive.training import callbacks, protocols

_PROJECT = 'tff-adaptive'
_RUN_ID = 'tff_adaptive.run_id'


class _Tracker(callbacks.Callback):
  """The base class of callbacks that log to a tracker, for as long as the tracker works.

  If the tracker cannot be opened, the run ends before its first round. If it fails later, this is
  reported once and the run continues without logging. metrics.csv has all rounds in any case.
  """

  service = ''  # The tracker's name.
  _open: Callable[..., None]  # Begins the tracker's run, or goes on with it.
  _log: Callable[..., None]  # Logs the columns of a round.
  _finish: Callable[..., None]  # Ends the tracker's run, which failed if the result is None.

  def __init__(self, run_id: str, name: str, parameters: Mapping[str, Any]):
    """Creates the callback.

    Args:
      run_id: The run's id, by which a resumed run finds what it logged before.
      name: The run's name in the tracker.
      parameters: The run's parameters by name; values of None are left out.
    """
    self._run_id = run_id
    self._name = name
    self._parameters = {k: v for k, v in parameters.items() if v is not None}
    self._say: Callable[[str], None] = print
    self._result: protocols.TrainingResult | None = None
    self._is_open = False

  def begin(self, run: callbacks.RunInfo) -> None:
    """Opens the tracker's run. Raises ValueError with a one-line message if this fails."""
    self._say = run.say
    try:
      self._open()
    except Exception as error:  # Trackers raise errors of many types.
      raise ValueError(f'{self.service} cannot be logged to: {_short(error)}') from error
    self._is_open = True

  def round_end(self, row: Mapping[str, Any]) -> None:
    values = {name: float(value) for name, value in row.items() if name != 'round'}
    self._try(self._log, int(row['round']), values)

  def end(self, result: protocols.TrainingResult) -> None:
    self._result = result

  def close(self) -> None:
    self._try(self._finish, self._result)
    self._is_open = False

  def _try(self, action: Callable[..., None], *arguments: Any) -> None:
    if not self._is_open:
      return
    try:
      action(*arguments)
    except Exception as error:
      self._is_open = False
      self._say(
        f'{self.service} takes no more rows ({_short(error)}); all rounds are in metrics.csv.'
      )


class MlflowCallback(_Tracker):
  """A callback that logs a run to MLflow. For resumed runs and arguments see `WandbCallback`."""

  service = 'MLflow'

  def _open(self) -> None:
    os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
    import mlflow

    self._client: Any = mlflow.MlflowClient()
    name = os.environ.get('MLFLOW_EXPERIMENT_NAME', _PROJECT)
    experiment = self._client.get_experiment_by_name(name)
    if experiment is None:
      experiment_id = self._client.create_experiment(name)
    else:
      experiment_id = experiment.experiment_id
    # MLflow gives its runs ids of its own, so a resumed run finds its first part by this tag.
    known = self._client.search_runs([experiment_id], f"tags.`{_RUN_ID}` = '{self._run_id}'")
    if known:
      self._mlflow_id = known[0].info.run_id
      self._client.update_run(self._mlflow_id, status='RUNNING')
    else:
      tags = {_RUN_ID: self._run_id}
      run = self._client.create_run(experiment_id, tags=tags, run_name=self._name)
      self._mlflow_id = run.info.run_id
      params = [mlflow.entities.Param(k, str(v)) for k, v in self._parameters.items()]
      self._client.log_batch(self._mlflow_id, params=params)

  def _log(self, step: int, values: Mapping[str, float]) -> None:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    metrics = [Metric(name, value, now, step) for name, value in values.items()]
    self._client.log_batch(self._mlflow_id, metrics=metrics)

  def _finish(self, result: protocols.TrainingResult | None) -> None:
    status = 'FAILED'
    if result is not None:  # A run that was killed can be resumed.
      status = 'KILLED'
      if result.is_complete:
        status = 'FINISHED'
    self._client.set_terminated(self._mlflow_id, status)


class WandbCallback(_Tracker):
  """A callback that logs a run to Weights & Biases. A resumed run continues its run there.

  Args:
    run_id: The run's id, by which a resumed run finds what it logged before.
    name: The run's name in the tracker.
    parameters: The run's parameters by name, which are logged once; values of None are left out.
  """

  service = 'Weights & Biases'

  def _open(self) -> None:
    import wandb

    resume: Any = 'allow'
    # Offline, wandb keeps each part in a folder of its own; syncing joins them by the id.
    if os.environ.get('WANDB_MODE') == 'offline':
      resume = None
    self._run: Any = wandb.init(
      project=os.environ.get('WANDB_PROJECT', _PROJECT),
      id=self._run_id,
      name=self._name,
      config=self._parameters,
      resume=resume,
      settings=wandb.Settings(console='off', quiet=True, silent=True),
    )

  def _log(self, step: int, values: Mapping[str, float]) -> None:
    self._run.log(dict(values), step=step)

  def _finish(self, result: protocols.TrainingResult | None) -> None:
    self._run.finish(exit_code=int(result is None))  # A run that failed has exit code 1.


def _short(error: Exception) -> str:
  # MLflow says within 500 characters what to do with a folder ./mlruns of its older versions.
  return f'{type(error).__name__}: {" ".join(str(error).split()):.500}'
