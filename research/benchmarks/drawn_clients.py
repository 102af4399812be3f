"""Clients in any number, drawn from a seed and their number where they are used."""

import collections
import operator
from collections.abc import Sequence

import numpy as np

_CLASSES = 10
_FEWEST, _MOST = 20, 200


class Ids(Sequence[str]):
  """'c0000000', 'c0000001', ...: sorted, and none is held in memory."""

  def __init__(self, count: int):
    self._count = count

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index):  # type: ignore[no-untyped-def]
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(self._count))]
    index = operator.index(index)
    if not -self._count <= index < self._count:
      raise IndexError(index)
    return f'c{index % self._count:07d}'


class DrawnClients:
  """Clients with 20 to 200 examples of ten classes, log-normal in number.

  A class's examples lie about its centre, a client has more of some classes than of others.
  """

  def __init__(self, count: int, features: int, seed: int):
    """Draws nothing yet but the centres.

    Args:
      count: How many clients there are.
      features: Of an example.
      seed: Of all that is drawn.
    """
    self.client_ids = Ids(count)
    self._seed, self._features = seed, features
    self._sizes = np.zeros(count, np.int16)  # Of those that were asked for.
    rng = np.random.default_rng([seed, 1])
    self._centres = rng.normal(size=(_CLASSES, features)).astype(np.float32)

  def __reduce__(self) -> tuple:
    return DrawnClients, (len(self.client_ids), self._features, self._seed)

  def num_examples(self, client_id: str) -> int:
    """How many examples a client has."""
    number = int(client_id[1:])
    if not self._sizes[number]:
      self._sizes[number] = self._size(self._rng(client_id))
    return int(self._sizes[number])

  def load(self, client_id: str) -> collections.OrderedDict:
    """A client's examples: OrderedDict(x=float32 [n, features], y=int32 [n])."""
    rng = self._rng(client_id)
    size = self._size(rng)
    y = rng.choice(_CLASSES, size, p=rng.dirichlet(np.full(_CLASSES, 0.5))).astype(np.int32)
    x = self._centres[y] + 2 * rng.standard_normal((size, self._features), np.float32)
    return collections.OrderedDict(x=x, y=y)

  def _rng(self, client_id: str) -> np.random.Generator:
    return np.random.default_rng([self._seed, 2, int(client_id[1:])])

  def _size(self, rng: np.random.Generator) -> int:
    return int(np.clip(rng.lognormal(np.log(60), 0.6), _FEWEST, _MOST))
