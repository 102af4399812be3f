"""Which clients take part in a round, and their data."""

import concurrent.futures
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import client_references
from tff_adaptive.client import whole_client
from tff_adaptive.training import protocols


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one round.

  Attributes:
    client_ids: Their ids, in the order of `working_order`.
    data: For each client `client.whole_client.dataset`, its number the position among all ids; or
      a `ClientReference` to it.
    client_examples: The examples of each client.
  """

  client_ids: Sequence[str]
  data: list[Any]
  client_examples: Sequence[int]

  @property
  def num_examples(self) -> int:
    """Examples of all of them together."""
    return sum(self.client_examples)


class ClientSource:
  """Gives clients' datasets; a copy of it in another process gives the same ones.

  It can be pickled if the clients can. A key is a client's id and its number.
  """

  def __init__(self, clients: protocols.ClientData, max_examples: int | None):
    """Takes the clients.

    Args:
      clients: All clients.
      max_examples: Only the first so many examples of a client are used; None for all.
    """
    self._clients, self._max_examples = clients, max_examples

  def load(self, keys: Sequence[tuple[str, int]]) -> list[Any]:
    """Returns `client.whole_client.dataset` for each key."""
    return [self._dataset(client_id, number) for client_id, number in keys]

  def reference(self, client_id: str, number: int) -> client_references.ClientReference:
    """Stands for a client's dataset; nothing is loaded.

    Args:
      client_id: The client.
      number: Its position among all ids.
    """
    examples = self._clients.num_examples(client_id)  # type: ignore[attr-defined]
    if self._max_examples is not None:
      examples = min(examples, self._max_examples)
    return client_references.ClientReference(self, (client_id, number), examples)

  def _dataset(self, client_id: str, number: int) -> Any:
    arrays = self._clients.load(client_id)
    x, y = arrays['x'][: self._max_examples], arrays['y'][: self._max_examples]
    return whole_client.dataset(x, y, number)


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


class CohortLoader:
  """Loads cohorts, the next one in the background while the present one is trained on.

  Attributes:
    source: Who has the clients' data.
    by_reference: Whether cohorts hold references to it, and so nothing is loaded.
  """

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
    """
    self.source, self.by_reference = ClientSource(clients, max_examples), False
    self._ids = clients.client_ids
    self._seed = seed
    self._cohort_size = cohort_size
    self._last_round = last_round
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
    keys = [(self._ids[position], int(position)) for position in positions]
    if self.by_reference:
      references = [self.source.reference(*key) for key in keys]
      data: list[Any] = list(references)
      sizes = [reference.num_examples for reference in references]
    else:
      data = self.source.load(keys)
      sizes = [len(elements[0]['y']) for elements in data]
    order = working_order(sizes)
    # Lists: TFF's native context wants one of the data.
    return Cohort(
      tuple(keys[i][0] for i in order), [data[i] for i in order], [sizes[i] for i in order]
    )
