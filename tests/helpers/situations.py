"""Situations in which rules choose cohorts."""

import numpy as np

from tff_adaptive import population


def known(num_clients, num_examples=None, seconds=None):
  """What is known of clients c0, c1, ..., which have one example each unless given."""
  if num_examples is None:
    sizes = np.ones(num_clients, np.int64)
  else:
    sizes = np.array(num_examples)
  if seconds is None:
    times = np.zeros(num_clients)
  else:
    times = np.array(seconds, float)
  return population.Known([f'c{i}' for i in range(num_clients)], sizes, times)


def situation(num_clients, size=1, number=1, seed=0, available=None, observed=None, **options):
  """A situation; `observed` has columns of `Known` by name, and clients have been seen then."""
  of_clients = {name: options.pop(name) for name in ('num_examples', 'seconds') if name in options}
  clients = known(num_clients, **of_clients)
  for name, values in (observed or {}).items():
    getattr(clients, name)[:] = values
  if available is None:
    available = np.arange(num_clients)
  return population.Situation(
    round_number=number,
    seed=seed,
    available=np.asarray(available),
    size=size,
    known=clients,
    **options,
  )
