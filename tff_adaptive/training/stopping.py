"""Ends runs before their last round (target, patience, budgets), and keeps the best weights."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import names, summary as summary_lib
from tff_adaptive.runs.errors import saving
from tff_adaptive.training import protocols
from tff_adaptive.training.config import BUDGETS, TrainingConfig

# The best weights, in the folder of the checkpoint: the model's trainable weights in its order, as
# weight_0, weight_1 and so on, and the scalars round, column (a text) and value.
BEST_FILE = 'best.npz'
_WEIGHT = 'weight_'
Row = Mapping[str, float]


class Best(NamedTuple):
  """The best evaluation of a run so far.

  Attributes:
    round_number: Its round.
    column: The column of metrics.csv that was compared.
    value: The value there.
  """

  round_number: int
  column: str
  value: float


class Progress:
  """The best value of a column so far, and the number of evaluations since it was reached."""

  def __init__(self, metric: str, min_delta: float = 0.0) -> None:
    """Creates it for a metric, or for a column of metrics.csv such as validation_loss.

    Args:
      metric: The name. A metric stands for inference_METRIC if a run has that, else for
        validation_METRIC. High values are good, except for losses and errors.
      min_delta: By how much a value has to be better than the best.
    """
    self._metric = metric
    self._min_delta = min_delta
    self.best: Best | None = None
    self.waited = 0

  def add(self, row: Row) -> bool:
    """Takes a row into account, and returns whether its value is the best so far."""
    column = self._column(row)
    if column is None:
      return False
    value = row[column]
    sign = -1 if names.is_error(column) else 1
    if self.best is None:
      is_better = not math.isnan(value)
    else:
      # NaN is never better, because comparisons with it are false.
      is_better = sign * value > sign * self.best.value + self._min_delta
    if is_better:
      self.best = Best(int(row['round']), column, value)
      self.waited = 0
    else:
      self.waited += 1
    return is_better

  def _column(self, row: Row) -> str | None:
    """Returns the column to compare; None if the row has none."""
    for column in (f'inference_{self._metric}', f'validation_{self._metric}', self._metric):
      if column in row:
        return column
    return None


class Stopping:
  """Says whether a run ends before its last round. It depends on the run's rows only.

  Attributes:
    reason: Why the run ends: 'target', 'early_stop' or the name of a budget; None if it goes on.
  """

  def __init__(self, config: TrainingConfig, rows: Sequence[Row] = ()) -> None:
    """Creates it from the rows of the rounds done."""
    self._config = config
    self._budgets = {}
    for name, columns in BUDGETS.items():
      budget = getattr(config, name)
      if budget is not None:
        self._budgets[name] = (budget, columns)
    self._spent = dict.fromkeys(self._budgets, 0.0)
    self._progress: Progress | None = None
    if config.early_stop is not None:
      self._progress = Progress(config.early_stop, config.min_delta)
    self.reason: str | None = None
    for row in rows:
      self.add(row)

  @property
  def lacks_column(self) -> bool:
    """Whether no row so far has had what `early_stop` names."""
    progress = self._progress
    return progress is not None and progress.best is None and not progress.waited

  def exhausts(self, row: Row) -> str | None:
    """Returns the budget that a round with these costs would reach; None if there is none."""
    for name, (budget, columns) in self._budgets.items():
      if self._spent[name] + _cost(row, columns) >= budget:
        return name
    return None

  def add(self, row: Row) -> None:
    """Takes a finished round into account."""
    # Asked before the round's costs are added to those of the rounds before.
    budget = self.exhausts(row)
    for name, (_, columns) in self._budgets.items():
      self._spent[name] += _cost(row, columns)
    has_waited = False
    if self._progress is not None:
      # It counts rows with the column, which are evaluations and not rounds.
      self._progress.add(row)
      has_waited = self._progress.waited >= self._config.patience
    if self.reason is not None:
      return
    # A target counts even if the same round uses up a budget.
    if self._reaches_target(row):
      self.reason = 'target'
    elif has_waited:
      self.reason = 'early_stop'
    else:
      self.reason = budget

  def _reaches_target(self, row: Row) -> bool:
    config = self._config
    if not config.stop_at_target or config.target is None:
      return False
    first = summary_lib.reached([row], config.metric, config.target)
    return any(isinstance(entry, dict) for entry in first.values())


class BestWeights:
  """Keeps the weights of the best evaluation of a run, in a file beside the checkpoint.

  Attributes:
    weights: The weights; None before the first evaluation.
  """

  def __init__(self, metric: str, folder: str | None, rows: Sequence[Row] = ()) -> None:
    """Creates it.

    Args:
      metric: See `Progress`.
      folder: The folder of the checkpoint; None keeps the weights in memory only.
      rows: The rows of the rounds done. If the file does not have the best of their evaluations,
        because it was deleted for example, the next evaluation counts as the best.
    """
    self._metric = metric
    self._path = None if folder is None else os.path.join(folder, BEST_FILE)
    self._progress = Progress(metric)
    self.weights: tuple[np.ndarray, ...] | None = None
    for row in rows:
      self._progress.add(row)
    best = self._progress.best
    if best is None:
      return
    stored = None if self._path is None else read_best(self._path)
    # After resuming from an earlier checkpoint, the file may have the weights of a later round.
    if stored is None or stored[0].round_number != best.round_number:
      self._progress = Progress(metric)
    else:
      self.weights = stored[1]

  def add(self, row: Row, state: Any) -> None:
    """Takes an evaluated row into account, with the server state that was evaluated.

    Raises SaveError if the file cannot be written.
    """
    if not self._progress.add(row):
      return
    best = self._progress.best
    assert best is not None
    weights = state.global_model_weights
    if best.column.startswith('inference_'):
      weights = state.inference_weights
    if isinstance(weights, protocols.ModelWeights):
      weights = weights.trainable
    self.weights = tuple(np.asarray(weight) for weight in weights)
    if self._path is not None:
      _write_best(self._path, best, self.weights)

  def verify(self) -> None:
    """Writes the file again if it does not have the weights that were kept, when a run ends.

    Raises SaveError if the file cannot be written.
    """
    best = self._progress.best
    if self._path is None or best is None or self.weights is None:
      return
    stored = read_best(self._path)
    is_kept = stored is not None and stored[0].round_number == best.round_number
    if stored is None or not is_kept or not _have_same_bits(stored[1], self.weights):
      _write_best(self._path, best, self.weights)

  def summary(self) -> dict[str, Any]:
    """Returns the entry of summary.json."""
    best = self._progress.best
    if best is None:
      return {}
    entry = {'round': best.round_number, 'column': best.column, 'value': best.value}
    return {'best': entry}


def read_best(path: str) -> tuple[Best, tuple[np.ndarray, ...]] | None:
  """Returns the best evaluation in a file and its weights; None if it cannot be read."""
  try:
    with np.load(path, allow_pickle=False) as file:
      count = sum(name.startswith(_WEIGHT) for name in file.files)
      weights = tuple(file[f'{_WEIGHT}{i}'] for i in range(count))
      best = Best(int(file['round']), str(file['column']), float(file['value']))
  except Exception:  # On damaged bytes the decoders raise a dozen unrelated classes.
    return None
  return best, weights


def _write_best(path: str, best: Best, weights: Sequence[np.ndarray]) -> None:
  arrays: dict[str, Any] = {
    'round': np.int64(best.round_number),
    'column': np.str_(best.column),
    'value': np.float64(best.value),
  }
  arrays.update((f'{_WEIGHT}{i}', weight) for i, weight in enumerate(weights))
  with saving(path), atomic_files.atomic_path(path) as temporary:
    np.savez(temporary, **arrays)


def _have_same_bits(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
  if len(some) != len(others):
    return False
  return all(a.tobytes() == b.tobytes() for a, b in zip(some, others))


def _cost(row: Row, columns: Sequence[str]) -> float:
  return sum(row.get(column, 0.0) for column in columns)
