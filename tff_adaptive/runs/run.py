"""Loads a run from its folder: its config, metrics, weights and task."""

import dataclasses
import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive._utils import streams
from tff_adaptive.runs import (
  config as config_lib,
  ledger as ledger_lib,
  metrics as metrics_lib,
  names,
  state_file,
  summary as summary_lib,
)
from tff_adaptive.runs.errors import StateError

if TYPE_CHECKING:
  import pandas as pd

# The horizontal axes of curves. A position is the sum of these columns over the rounds so far.
AXES: Mapping[str, tuple[str, ...]] = {
  'round': (),
  'megabytes': ('megabytes_down', 'megabytes_up'),
  'megabytes_up': ('megabytes_up',),
  'megabytes_down': ('megabytes_down',),
  'seconds': ('seconds_round',),
  'virtual_seconds': ('virtual_seconds',),
}
_WEIGHTS = {'theta': 'validation', 'theta_bar': 'inference'}  # Weights -> columns of their metrics.


class NoRoundsError(ValueError):
  """Raised if a run has not written a row of metrics.csv yet."""


@dataclasses.dataclass(frozen=True)
class Run:
  """A run that was loaded from its folder.

  Attributes:
    folder: The run's folder.
    config: The contents of config.json.
    rows: For each round a mapping from column of metrics.csv to number, without empty cells.
    load_task: A function that loads a task from a config.json; see `load_run`.
    window: Number of last rounds that reports average; if None, `reports.scores.window` decides.
    renamed: Texts by label, which tables and legends show instead of the label.
  """

  folder: str
  config: Mapping[str, Any]
  rows: Sequence[Mapping[str, float]]
  load_task: Callable[[Mapping[str, Any]], Any] | None = None
  window: int | None = None
  renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def shown(self) -> Mapping[str, Any]:
    """The settings as tables and legends name them; see `names.shown`."""
    return names.shown(self.config)

  @property
  def settings(self) -> Mapping[str, Any]:
    """The run's settings by name."""
    return self.config['settings']

  @property
  def metric(self) -> str | None:
    """The metric of the run's task; None if it is not recorded."""
    return self.config.get('metric')

  @property
  def is_complete(self) -> bool:
    """Whether the run has done all its rounds, or has stopped at its target."""
    if not self.rows:
      return False
    done = self.rows[-1]['round']
    asked = self.settings['rounds']
    return bool(done >= asked or summary_lib.is_complete(self.folder, asked, done))

  @property
  def ledger(self) -> 'pd.DataFrame':
    """The ledger: a row for each client and round. Raises RunFileError if the run has none."""
    return ledger_lib.read(self.folder)

  @property
  def trace(self) -> 'pd.DataFrame':
    """The local steps of the traced client. Raises RunFileError if the run traced none."""
    return ledger_lib.read(self.folder, ledger_lib.TRACE)

  def summary(self) -> dict[str, Any]:
    """Returns the entries of summary.json that follow from the rows; see `summary.summarize`."""
    return summary_lib.summarize(self.rows, self.is_complete)

  def curve(self, column: str) -> dict[int, float]:
    """Returns the values of a column by round, for the rounds that have a value."""
    return {int(row['round']): row[column] for row in self.rows if column in row}

  def progress(self, axis: str) -> dict[int, float]:
    """Returns, by round, the run's position on the horizontal axis of a figure.

    `axis` is a name in `AXES`: 'round', or one of totals up to the round, such as 'megabytes'.

    Raises:
      ValueError: If metrics.csv does not have the columns of the axis, or totals are unknown,
        because the rows of the first rounds were lost.
    """
    columns = AXES[axis]
    for column in columns:
      if not self._has(column):
        raise ValueError(
          f'{self.folder} has no column {column!r} in metrics.csv: take another axis than {axis}.'
        )
    rounds = [int(row['round']) for row in self.rows]
    if not columns:
      return {t: float(t) for t in rounds}
    if rounds[0] > 0:
      raise ValueError(
        f'{self.folder} has lost the rows before round {rounds[0]}, so totals are not known: take'
        f' another axis than {axis}.'
      )
    positions = {}
    position = 0.0
    for t, row in zip(rounds, self.rows):
      position += sum(row.get(column, 0.0) for column in columns)
      positions[t] = position
    return positions

  def _has(self, column: str) -> bool:
    """Returns whether a row has a value of the column."""
    return any(column in row for row in self.rows)

  @functools.cached_property
  def metrics(self) -> 'pd.DataFrame':
    """metrics.csv as a pandas data frame, indexed by round; missing values are NaN."""
    import pandas as pd  # Slow to import and needed here only.

    return pd.DataFrame(list(self.rows)).set_index('round', drop=False)

  @property
  def round_number(self) -> int:
    """The number of rounds done at the last checkpoint, from which weights are read."""
    return self._state[0]

  @property
  def weights(self) -> tuple[np.ndarray, ...]:
    """The trainable weights of the global model (theta), in the model's order."""
    return self._weights('global_model_weights')

  @property
  def inference_weights(self) -> tuple[np.ndarray, ...] | None:
    """The trainable weights of theta-bar, which some algorithms evaluate beside theta, or None."""
    # Any row will do, because the last one of an interrupted run may lack an evaluation.
    for row in self.rows:
      if any(column.startswith('inference_') for column in row):
        return self._weights('inference_weights')
    return None

  def best(self, metric: str) -> str:
    """Returns the name of the weights that were better at the last evaluation.

    The name is 'theta' for `weights`, or 'theta_bar' for `inference_weights`. Both are compared by
    `metric`, such as 'accuracy'. For losses and errors small values are better.

    Raises:
      ValueError: If the metric was not evaluated.
    """
    columns = {name: f'{prefix}_{metric}' for name, prefix in _WEIGHTS.items()}
    for row in reversed(self.rows):
      values = {name: row[column] for name, column in columns.items() if column in row}
      if values:
        # Comparisons with NaN would choose by the order.
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        better = min if names.is_error(metric) else max
        return better(finite or values, key=values.__getitem__)
    raise ValueError(f'{self.folder}: {columns["theta"]} was never evaluated.')

  def chosen(self, which: str) -> tuple[np.ndarray, ...]:
    """Returns the weights named 'theta' or 'theta_bar'. Raises ValueError if the run lacks them."""
    weights = {'theta': self.weights, 'theta_bar': self.inference_weights}.get(which)
    if weights is None:
      raise ValueError(f"{self.folder} has no weights {which!r}: take 'theta'.")
    return weights

  def evaluation(self, which: str) -> tuple[int, dict[str, float]]:
    """Returns the last evaluation that the weights at the checkpoint had, as metrics.csv has it.

    Args:
      which: The weights, 'theta' or 'theta_bar'.

    Returns:
      The round, which is at most that of the checkpoint, and the validation metrics by name.

    Raises:
      ValueError: If these weights were not evaluated up to the checkpoint.
    """
    prefix = f'{_WEIGHTS[which]}_'
    for row in reversed(self.rows):
      metrics = {c.removeprefix(prefix): row[c] for c in row if c.startswith(prefix)}
      if metrics and row['round'] <= self.round_number:
        return int(row['round']), metrics
    raise ValueError(f'{self.folder}: {which} was not evaluated up to its last checkpoint.')

  def task(self) -> Any:
    """Loads the run's task again.

    Raises:
      ValueError: If `load_task` is None or does not find the task, or the numbers of the task's
        clients or examples have changed.
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
    """Evaluates the model of the run's task, and returns the metrics' values by name.

    Args:
      weights: Trainable weights in the model's order; by default the `best` by the task's metric.
      data: OrderedDict(x, y) of prepared examples. The default is the task's validation data.
    """
    from tff_adaptive import models

    task = self.task()
    if weights is None:
      weights = self.chosen(self.best(task.metric))
    if data is None:
      data = task.validation
    model = task.build_model(self.settings.get('seed', 0))
    return models.build_evaluation(model)(weights, data)

  @functools.cached_property
  def _state(self) -> tuple[int, Mapping[str, np.ndarray]]:
    return state_file.read_last(state_file.path(self.folder))

  def _weights(self, model: str) -> tuple[np.ndarray, ...]:
    """Returns the trainable weights of a model in the server state."""
    leaves = self._state[1]
    expected = self.config['num_parameters']
    weights: list[np.ndarray] = []
    for prefix in (f'{model}/trainable/', f'{model}/'):  # Of a `ModelWeights`, or weights alone.
      if not weights:
        weights = [leaf for name, leaf in leaves.items() if name.startswith(prefix)]
    if sum(leaf.size for leaf in weights) != expected:
      raise StateError(
        f'{self.folder}: {model} of the checkpoint does not have the {expected:,} parameters of'
        ' config.json.'
      )
    return tuple(weights)


def load_run(folder: str, load_task: Callable[[Mapping[str, Any]], Any] | None = None) -> Run:
  """Loads a run from its folder without changing anything there.

  Args:
    folder: The run's folder.
    load_task: A function that loads the run's task from its config.json, for `Run.task` and
      `Run.evaluate`. `tasks.load_run` gives one for tasks of the catalogue and of users' files.

  Returns:
    The run. Its weights are read at first use, which raises StateError if they cannot be read.

  Raises:
    NoRoundsError: If the run has no rounds yet.
    ValueError: If the folder is not that of a run, or a file of it cannot be read.
  """
  folder = os.path.expanduser(folder)
  try:
    config = config_lib.read(folder)
  except FileNotFoundError:
    reason = 'there is no such folder'
    if os.path.isdir(folder):
      reason = f'it has no {config_lib.FILE}'
    raise ValueError(f'{folder} is not the folder of a run: {reason}.') from None
  try:
    rows = metrics_lib.read(os.path.join(folder, metrics_lib.FILE))
  except FileNotFoundError:
    rows = []
  if not rows:
    raise NoRoundsError(f'{folder} has no rounds yet.')
  return Run(folder, config, rows, load_task)


def find_runs(folders: Iterable[str]) -> list[Run]:
  """Loads the runs in folders and below them.

  Args:
    folders: Folders of runs, or folders that hold such folders at any depth.

  Returns:
    The runs, each once, in the order of `folders` and, below a folder, of their paths. Links to
    folders are followed. Runs without rounds, runs that cannot be read, and runs that repeat one of
    the others, are left out and named on stderr.

  Raises:
    ValueError: If a folder holds no run, none of the runs has rounds, or none can be read.
  """
  below: dict[str, str] = {}  # Real path -> path where it was found first.
  for folder in folders:
    holding = sorted(_below(folder))
    if not holding:
      raise ValueError(f'there is no run in {folder}: no folder in it has a config.json.')
    for path in holding:
      below.setdefault(os.path.realpath(path), path)
  runs = []
  unreadable: list[ValueError] = []
  for path in below.values():
    # One unreadable run does not hide the others.
    try:
      runs.append(load_run(path))
    except NoRoundsError as error:
      streams.write(sys.stderr, f'Left out: {error}\n')
    except ValueError as error:
      unreadable.append(error)
  if not runs and unreadable:
    raise unreadable[0]
  for one in unreadable:
    streams.write(sys.stderr, f'Left out: {one}\n')
  if not runs:
    raise NoRoundsError('none of the runs has rounds yet.')
  return _each_once(runs)


def _each_once(runs: Sequence[Run]) -> list[Run]:
  """Returns the runs without those that repeat another one, whose numbers they have."""
  by_folder = {os.path.realpath(run.folder): run for run in runs}
  others = []
  for run in runs:
    repeated = by_folder.get(_repeated_folder(run))
    if repeated is None or repeated is run:
      others.append(run)
    else:
      streams.write(sys.stderr, f'Left out: {run.folder} repeats {repeated.folder}.\n')
  return others


def _repeated_folder(run: Run) -> str:
  """Returns the real path of the folder of the run that a run repeats, or ''."""
  path = run.settings.get('config')
  if not isinstance(path, str):
    return ''
  folder = os.path.realpath(path)
  if os.path.basename(folder) == config_lib.FILE:
    return os.path.dirname(folder)
  return folder


def _below(folder: str) -> Iterator[str]:
  """Yields the folders of runs at any depth below a folder, each once. It follows links."""
  seen: set[str] = set()
  for path, below, files in os.walk(folder, followlinks=True):
    real = os.path.realpath(path)
    if real in seen:
      below.clear()  # A link to a folder that was visited already.
      continue
    seen.add(real)
    below.sort()  # So that of two links to a folder always the same is followed.
    if config_lib.FILE in files:
      yield path
