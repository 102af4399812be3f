"""What summary.json says of a run's population, from its rows."""

from collections.abc import Mapping, Sequence
from typing import Any

_COUNTED = ('selected', 'finished', 'partial', 'dropped')


def summarize(rows: Sequence[Mapping[str, float]], clients_per_round: int) -> dict[str, Any]:
  """Summarises what became of the clients that were drawn.

  Args:
    rows: Column -> number for each round of a run with a population, round 0 first.
    clients_per_round: Clients that a round is to have.

  Returns:
    The virtual clock at the end; sums over the rounds of clients selected, finished, partial and
    dropped; the rounds in which fewer than `clients_per_round` were available, and those whose
    model took no client's update because none finished.
  """
  rounds = [row for row in rows if 'selected' in row]
  return {
    'virtual_seconds': rows[-1].get('virtual_seconds', 0.0) if rows else 0.0,
    **{name: sum(int(row[name]) for row in rounds) for name in _COUNTED},
    'rounds_with_few_available': sum(row['available'] < clients_per_round for row in rounds),
    'rounds_without_clients': sum(not row['clients'] for row in rounds),
  }
