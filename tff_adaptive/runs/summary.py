"""Makes, writes and reads summary.json of a run."""

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import costs
from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import names
from tff_adaptive.runs.errors import RunFileError, reading, saving

FILE = 'summary.json'
WINDOW = 100
EVALUATED = ('validation_', 'inference_')  # Columns that rounds without evaluation lack.
_ADDED_UP = ('virtual_seconds', 'megabytes_down', 'megabytes_up')
_COUNTED = ('selected', 'finished', 'partial', 'dropped')


def summarize(rows: Sequence[Mapping[str, float]], is_complete: bool) -> dict[str, Any]:
  """Returns the entries of summary.json that follow from a run's rows.

  Args:
    rows: For each round from 0 on a mapping from column to number, without empty cells.
    is_complete: Whether the run has done all its rounds or has stopped at its target.

  Returns:
    `last` has the last value of each column except wall-clock times. `mean_last_100_rounds` has the
    mean of each validation column over the evaluations in the last 100 rounds, as "Adaptive
    Federated Optimization" reports them; `evaluations_averaged` is the number of these evaluations.
    `rounds` is the number of rounds done, and `totals` has their costs, if these were counted.
    `non_finite_clients` is the number of updates that were not finite, `rounds_without_update` the
    number of rounds without any finite update, and `ends_without_update` says whether the last
    round is one of these. `seconds_...` are the median and the sum of the rounds' seconds. If the
    rows of the first rounds were lost, `first_recorded_round` says which is the first; sums count
    from there.
  """
  last: dict[str, float] = {}
  # Wall-clock times differ from run to run; they have entries of their own.
  for row in rows:
    last.update({k: v for k, v in row.items() if not k.startswith('seconds_')})
  num_rounds = 0
  first_round = 0
  if rows:
    first_round = int(rows[0]['round'])
    num_rounds = int(rows[-1]['round'])
  # Round 0 is the initial model: no round of training.
  window = [row for row in rows if row['round'] > max(0, num_rounds - WINDOW)]
  columns = [name for name in last if name.startswith(EVALUATED)]
  values = {column: _values(window, column) for column in columns}
  totals = {column: _total(rows, column) for column in costs.COLUMNS if column in last}
  seconds = _values(rows, 'seconds_round')
  # All clients of such a round diverged; a round without clients is another thing.
  without = [0 < row.get('clients', 0) <= row.get('non_finite_clients', 0) for row in rows]
  with np.errstate(all='ignore'):  # Values may be infinite; inf - inf is NaN.
    means = {c: float(np.mean(v)) for c, v in values.items() if v}
  summary: dict[str, Any] = {'is_complete': is_complete, 'rounds': num_rounds}
  if first_round:
    summary['first_recorded_round'] = first_round
  return {
    **summary,
    'last': {name: _plain(value) for name, value in last.items()},
    f'mean_last_{WINDOW}_rounds': means,
    'evaluations_averaged': max(map(len, values.values()), default=0),
    'rounds_without_update': sum(without),
    'ends_without_update': any(without[-1:]),
    'non_finite_clients': _plain(_total(rows, 'non_finite_clients')),
    'totals': {name: _plain(value) for name, value in totals.items()},
    'seconds_per_round_median': statistics.median(seconds) if seconds else None,
    'seconds_training': sum(seconds),
  }


def reached(rows: Sequence[Mapping[str, float]], metric: str, target: float) -> dict[str, Any]:
  """Returns the rounds and megabytes that it took to reach a target, for summary.json.

  Args:
    rows: For each round from 0 on a mapping from column to number.
    metric: The metric's name, such as accuracy.
    target: The value to reach. High values are good, except for losses and errors.

  Returns:
    `target`, and an entry for the global model (`validation_...`) and for the model for inference
    (`inference_...`), if there is one. An entry is None if no evaluated round reached the target.
    Otherwise it has the first round that did, the megabytes sent up to this round and, with a
    `Population`, the virtual seconds.
  """
  entries: dict[str, Any] = {'target': target}
  added_up = [name for name in _ADDED_UP if _values(rows, name)]
  for column in (f'validation_{metric}', f'inference_{metric}'):
    if not _values(rows, column):
      continue
    entries[column] = None
    number = _first_good(rows, column, target)
    if number is not None:
      sums = {name: _total(rows[: number + 1], name) for name in added_up}
      entries[column] = {'round': int(rows[number]['round']), **sums}
  return entries


def _first_good(rows: Sequence[Mapping[str, float]], column: str, target: float) -> int | None:
  """Returns the number of the first row whose value in a column reaches a target, or None."""
  # Of errors small values are good: with the sign changed, large ones.
  sign = -1 if names.is_error(column) else 1
  # A row without a value compares as NaN, which reaches nothing.
  for number, row in enumerate(rows):
    if sign * row.get(column, math.nan) >= sign * target:
      return number
  return None


def _values(rows: Sequence[Mapping[str, float]], column: str) -> list[float]:
  """Returns the values of a column in the rows that have one."""
  return [row[column] for row in rows if column in row]


def _total(rows: Sequence[Mapping[str, float]], column: str) -> float:
  """Returns the sum of a column; rows without a value count as 0."""
  return _sum(row.get(column, 0.0) for row in rows)


def of_population(rows: Sequence[Mapping[str, float]], clients_per_round: int) -> dict[str, Any]:
  """Counts the outcomes of the clients that were drawn in a run with a `Population`.

  Args:
    rows: For each round from 0 on a mapping from column to number.
    clients_per_round: Number of clients in a full round.

  Returns:
    Sums over the rounds of virtual seconds and of selected, finished, partial and dropped clients;
    the number of rounds in which fewer than `clients_per_round` were available; and the number of
    rounds without an update, because no client finished.
  """
  rounds = [row for row in rows if 'selected' in row]
  return {
    'virtual_seconds': _total(rounds, 'virtual_seconds'),
    **{name: _plain(_total(rounds, name)) for name in _COUNTED},
    'rounds_with_few_available': sum(row['available'] < clients_per_round for row in rounds),
    'rounds_without_clients': sum(not row['clients'] for row in rounds),
  }


def write(folder: str, summary: Mapping[str, Any]) -> None:
  """Writes the summary.json of the run in a folder. Raises SaveError if this fails."""
  path = os.path.join(folder, FILE)
  with saving(path):
    atomic_files.write_json(path, summary)


def read(folder: str) -> dict[str, Any]:
  """Reads the summary.json of a run.

  Raises:
    FileNotFoundError: If the folder has no summary.json.
    RunFileError: If the file cannot be read, or is not the summary of a run.
  """
  path = os.path.join(folder, FILE)
  with reading(path), open(path, encoding='utf-8') as file:
    summary = json.load(file)
    if type(summary['is_complete']) is not bool or type(summary['rounds']) is not int:
      raise TypeError('it does not say whether the run is complete')
    return dict(summary)


def is_complete(folder: str, rounds: int, done: float | None = None) -> bool:
  """Returns whether the run in a folder has done all `rounds`, or has stopped earlier as it should.

  It is not if `done`, the last round in metrics.csv, is given and is not that of summary.json.
  """
  try:
    summary = read(folder)
  except (FileNotFoundError, RunFileError):
    return False
  has_stopped = 'stopped_at_target' in summary or 'stopped_early' in summary
  is_asked = summary['rounds'] == rounds or has_stopped
  return summary['is_complete'] and is_asked and done in (None, summary['rounds'])


def _sum(values: Iterable[float]) -> float:
  """Returns the sum of numbers, of which some may be infinite or NaN."""
  listed = list(values)
  try:
    return math.fsum(listed)
  except (OverflowError, ValueError):  # inf - inf, or beyond all floats.
    with np.errstate(all='ignore'):
      return float(np.sum(listed))


def _plain(value: float) -> Any:
  """Returns a float as an int if it is whole, because counts are easier to read so."""
  # Larger floats are all whole, which says nothing.
  if float(value).is_integer() and abs(value) < 2**53:
    return int(value)
  return value
