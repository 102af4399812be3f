"""Computes the entries of summary.json about a run's target and population."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive.reports import scores

_ADDED_UP = ('virtual_seconds', 'megabytes_down', 'megabytes_up')
_COUNTED = ('selected', 'finished', 'partial', 'dropped')


def reached(rows: Sequence[Mapping[str, float]], metric: str, target: float) -> dict[str, Any]:
  """Returns what it took to reach a target, for summary.json.

  Args:
    rows: Column -> number for each round, round 0 first.
    metric: The metric's name, such as accuracy.
    target: The value to reach. High values are good, except for losses and errors.

  Returns:
    `target`, and an entry for the global model (`validation_...`) and for the model for inference
    (`inference_...`), if there is one. The entry is None if no evaluated round reached the target.
    Otherwise it has the first such round, the megabytes sent until then and, with a population, the
    virtual seconds.
  """
  found: dict[str, Any] = {'target': target}
  added_up = [name for name in _ADDED_UP if any(name in row for row in rows)]
  for column in (f'validation_{metric}', f'inference_{metric}'):
    if any(column in row for row in rows):
      sign = scores.sign(column)
      good = (i for i, row in enumerate(rows) if sign * row.get(column, math.nan) >= sign * target)
      found[column] = first = next(good, None)
      if first is not None:
        sums = {n: math.fsum(row.get(n, 0.0) for row in rows[: first + 1]) for n in added_up}
        found[column] = {'round': int(rows[first]['round']), **sums}
  return found


def of_population(rows: Sequence[Mapping[str, float]], clients_per_round: int) -> dict[str, Any]:
  """Summarises what happened to the clients that were drawn.

  Args:
    rows: Column -> number for each round of a run with a population, round 0 first.
    clients_per_round: Number of clients in a full round.

  Returns:
    Sums over the rounds of virtual seconds and of selected, finished, partial and dropped clients;
    the number of rounds in which fewer than `clients_per_round` were available; and the number of
    rounds without an update, because no client finished.
  """
  rounds = [row for row in rows if 'selected' in row]
  return {
    'virtual_seconds': math.fsum(row['virtual_seconds'] for row in rounds),
    **{name: sum(int(row[name]) for row in rounds) for name in _COUNTED},
    'rounds_with_few_available': sum(row['available'] < clients_per_round for row in rounds),
    'rounds_without_clients': sum(not row['clients'] for row in rounds),
  }
