"""A run as it lies in its folder: its config, metrics and weights, and its task again."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive.runs import metric_names, runs, saved_checkpoint
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import STATE_FILE

if TYPE_CHECKING:
  import pandas as pd

# In config.json: how many arrays of a model do not train, if any.
NON_TRAINABLE = 'non_trainable_arrays'
_NAMES = {'theta': 'validation', 'theta_bar': 'inference'}  # Of the columns of metrics.csv.


@dataclasses.dataclass(frozen=True)
class SavedRun:
  """One run.

  Attributes:
    folder: Where it lies.
    config: Its config.json.
    rows: Its metrics.csv: column -> number, a row a round, empty cells absent.
    load_task: What loads a task from a config.json; see `load_run`.
  """

  folder: str
  config: Mapping[str, Any]
  rows: Sequence[Mapping[str, float]]
  load_task: Callable[[Mapping[str, Any]], Any] | None = None

  @property
  def settings(self) -> Mapping[str, Any]:
    """The run's settings by name."""
    return self.config['settings']

  @functools.cached_property
  def metrics(self) -> 'pd.DataFrame':
    """metrics.csv: a row a round, NaN where something was not measured."""
    import pandas as pd  # Slow to import and needed here only.

    return pd.DataFrame(list(self.rows)).set_index('round', drop=False)

  @property
  def round_number(self) -> int:
    """The round of the checkpoint that the weights are from."""
    return self._state.round_number

  @property
  def weights(self) -> tuple[np.ndarray, ...]:
    """theta, the global model's trainable weights, in the model's order."""
    return self._weights(0)

  @property
  def inference_weights(self) -> tuple[np.ndarray, ...] | None:
    """theta-bar, the mean of the client models, where the algorithm evaluates it; else None."""
    # The last row of a run that was interrupted need not be one with an evaluation.
    if not any(column.startswith('inference_') for row in self.rows for column in row):
      return None
    return self._weights(1)

  def best(self, metric: str) -> str:
    """Which weights had the better value at the last evaluation: 'theta' or 'theta_bar'.

    Args:
      metric: A metric's name; losses and errors are better when smaller.

    Raises:
      ValueError: If the metric was not evaluated.
    """
    columns = {name: f'{prefix}_{metric}' for name, prefix in _NAMES.items()}
    for row in reversed(self.rows):
      values = {name: row[column] for name, column in columns.items() if column in row}
      if values:
        better = min if metric_names.is_error(metric) else max
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        return better(finite or values, key=values.__getitem__)
    raise ValueError(f'{self.folder}: {columns["theta"]} was never evaluated.')

  def chosen(self, which: str) -> tuple[np.ndarray, ...]:
    """The weights called 'theta' or 'theta_bar'.

    Raises:
      ValueError: If there are no such weights.
    """
    weights = {'theta': self.weights, 'theta_bar': self.inference_weights}.get(which)
    if weights is None:
      raise ValueError(f"{self.folder} has no weights {which!r}: take 'theta'.")
    return weights

  def task(self) -> Any:
    """The run's task, loaded anew.

    Raises:
      ValueError: If the task cannot be found from config.json, or the numbers of its clients or
        examples have changed.
    """
    if self.load_task is None:
      raise ValueError(
        'this run was loaded without a way to load its task: take tasks.load_run, or give '
        'load_task=lambda config: my_task'
      )
    return self.load_task(self.config)

  def evaluate(
    self, weights: Sequence[Any] | None = None, data: Mapping[str, Any] | None = None
  ) -> dict[str, float]:
    """Metrics of the model.

    Args:
      weights: Trainable weights; by default those that `best` names by the task's metric.
      data: OrderedDict(x, y) of prepared examples; by default the task's validation data.
    """
    from tff_adaptive import models

    task = self.task()
    weights = self.chosen(self.best(task.metric)) if weights is None else weights
    model = task.build_model(self.settings.get('seed', 0))
    return models.build_evaluation(model)(weights, task.validation if data is None else data)

  @functools.cached_property
  def _state(self) -> saved_checkpoint.SavedState:
    folder = self.settings.get('client_state_dir') or os.path.join(self.folder, 'checkpoints')
    return saved_checkpoint.read(os.path.join(folder, STATE_FILE))

  def _weights(self, position: int) -> tuple[np.ndarray, ...]:
    """The trainable weights of the first or the second model of the server state.

    A model's leaves are its trainable weights, num_parameters numbers, then the others.
    """
    total, leaves = self.config['num_parameters'], self._state.arrays
    sums = list(itertools.accumulate(leaf.size for leaf in leaves))
    if total in sums:
      count = sums.index(total) + 1
      begin = position * (count + self.config.get(NON_TRAINABLE, 0))
      found = leaves[begin : begin + count]
      if [leaf.shape for leaf in found] == [leaf.shape for leaf in leaves[:count]]:
        return tuple(found)
    raise StateError(f'{self.folder}: the checkpoint has not {total:,} parameters as config.json.')


def load_run(folder: str, load_task: Callable[[Mapping[str, Any]], Any] | None = None) -> SavedRun:
  """Loads a run from its folder; nothing there is changed.

  Args:
    folder: The run's folder.
    load_task: Loads the run's task from its config.json, for `SavedRun.task` and `evaluate`;
      `tasks.load_run` gives one for tasks of the catalogue and of files.

  Returns:
    The run. Weights are read from the checkpoint when they are first asked for.

  Raises:
    ValueError: If the folder is no run's, or the run has no rounds yet.
  """
  found = runs.read_run(os.path.expanduser(folder))
  return SavedRun(found.folder, found.config, found.rows, load_task)
