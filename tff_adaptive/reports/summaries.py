"""What summary.json says of a run's target and of its population, from its rows."""

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
    target: Its value; high is good, but for loss, mse, mae and error.

  Returns:
    `target`; and for the global model (`validation_...`) and, where there is one, the model for
    inference (`inference_...`): None if no evaluated round was so good, else the first that was,
    the megabytes sent until then and, in a run with a population, the virtual seconds.
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
  """Summarises what became of the clients that were drawn.

  Args:
    rows: Column -> number for each round of a run with a population, round 0 first.
    clients_per_round: Clients that a round is to have.

  Returns:
    Sums over the rounds of virtual seconds and of clients selected, finished, partial and dropped;
    the rounds in which fewer than `clients_per_round` were available, and those whose model took no
    client's update because none finished.
  """
  rounds = [row for row in rows if 'selected' in row]
  return {
    'virtual_seconds': math.fsum(row['virtual_seconds'] for row in rounds),
    **{name: sum(int(row[name]) for row in rounds) for name in _COUNTED},
    'rounds_with_few_available': sum(row['available'] < clients_per_round for row in rounds),
    'rounds_without_clients': sum(not row['clients'] for row in rounds),
  }
