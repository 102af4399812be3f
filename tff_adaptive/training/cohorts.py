"""Which clients take part in a round, and their data."""

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive.client import whole_client


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one round.

  Attributes:
    client_ids: Their ids, in the order of `working_order`.
    data: For each client `client.whole_client.dataset`, its number the position among all ids.
    num_examples: Examples of all of them together.
  """

  client_ids: Sequence[str]
  data: list[Any]
  num_examples: int

  @property
  def client_examples(self) -> list[int]:
    """The examples of each client."""
    return [len(elements[0]['y']) for elements in self.data]

  def check_finite(self) -> None:
    """Refuses data that are not finite; ValueError with the client, the array and the row."""
    for client_id, (examples,) in zip(self.client_ids, self.data):
      for name in 'x', 'y':
        array = np.asarray(examples[name])
        if array.dtype.kind not in 'fc' or np.isfinite(array).all():
          continue
        at = tuple(np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
          f'the data of client {client_id!r} are not finite: {name}, row {at[0]}, has {array[at]};'
          ' leave the row or the client out.'
        )


def sample(seed: int, round_number: int, num_clients: int, cohort_size: int) -> np.ndarray:
  """Draws a round's clients uniformly, without replacement within the round.

  The draw depends on its arguments only, so that a resumed run draws what an uninterrupted
  one does.

  Args:
    seed: The run's seed, >= 0.
    round_number: The round, >= 0.
    num_clients: Clients there are.
    cohort_size: Clients to draw, 1 to `num_clients`.

  Returns:
    int64 [cohort_size], positions in [0, num_clients).

  Raises:
    ValueError: If there are fewer clients than are to be drawn.
  """
  if not 1 <= cohort_size <= num_clients:
    raise ValueError(
      f'clients_per_round is {cohort_size}; it must be from 1 to {num_clients}, the number of'
      ' clients there are.'
    )
  generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, round_number])))
  return generator.choice(num_clients, size=cohort_size, replace=False)


def working_order(sizes: Sequence[int]) -> list[int]:
  """The order in which clients are given to an engine that has a few of them in work at once.

  The engine's window of clients moves on when its first one is done. So large clients come early,
  where they hold up the others least, and the largest last among them: clients after it can begin
  while it works.

  Args:
    sizes: The clients' examples.

  Returns:
    Positions in `sizes`: the four largest, rising, then the others, falling.
  """
  falling = sorted(range(len(sizes)), key=lambda i: -sizes[i])
  return falling[3::-1] + falling[4:]


def _check_distinct(client_ids: Sequence[str]) -> None:
  """Refuses ids that are there twice: two clients would share one state and one set of seeds."""
  is_rising = all(a < b for a, b in itertools.pairwise(client_ids))  # Sorted: nothing to remember.
  if not is_rising and len(set(client_ids)) < len(client_ids):
    twice, _ = collections.Counter(client_ids).most_common(1)[0]
    raise ValueError(
      f'the client {twice!r} is in client_ids more than once: give each client once.'
    )


class CohortLoader:
  """Loads cohorts, the next one in the background while the present one is trained on."""

  def __init__(
    self,
    clients: Any,
    *,
    seed: int,
    cohort_size: int,
    last_round: int,
    max_examples: int | None = None,
  ):
    """Creates the loader.

    Args:
      clients: All clients: has `client_ids` (a sequence of str) and `load(client_id)`, which
        gives `OrderedDict(x=array[n, ...], y=array[n, ...])`.
      seed: The run's seed.
      cohort_size: Clients a round.
      last_round: No cohort is loaded ahead for a later round than this.
      max_examples: Only the first so many examples of a client are used; None for all.

    Raises:
      ValueError: If an id is there twice.
    """
    self._clients = clients
    self._ids = clients.client_ids
    _check_distinct(self._ids)
    self._seed = seed
    self._cohort_size = cohort_size
    self._last_round = last_round
    self._max_examples = max_examples
    self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='cohort')
    self._ahead: tuple[int, concurrent.futures.Future | None] = (-1, None)

  def take(self, round_number: int) -> Cohort:
    """Returns the cohort of a round and starts loading the next round's."""
    ready, future = self._ahead
    if ready != round_number or future is None:
      future = self._pool.submit(self._load, round_number)
    cohort = future.result()
    if round_number < self._last_round:
      self._ahead = (round_number + 1, self._pool.submit(self._load, round_number + 1))
    else:
      self._ahead = (-1, None)
    return cohort

  def close(self) -> None:
    """Ends the background thread."""
    self._pool.shutdown(wait=True, cancel_futures=True)

  def _load(self, round_number: int) -> Cohort:
    positions = sample(self._seed, round_number, len(self._ids), self._cohort_size)
    members = []
    for position in positions:
      client_id = self._ids[position]
      arrays = self._clients.load(client_id)
      x, y = arrays['x'][: self._max_examples], arrays['y'][: self._max_examples]
      members.append((client_id, whole_client.dataset(x, y, position)))
    sizes = [len(elements[0]['y']) for _, elements in members]
    ids, data = zip(*(members[i] for i in working_order(sizes)))
    return Cohort(ids, list(data), sum(sizes))  # TFF's native context wants a list.
