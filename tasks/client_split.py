"""Splits a task's clients into those that train and those that never do; holds out examples.

As in "What Do We Mean by Generalization in Federated Learning?" (Yuan et al., 2022), some clients
never train, and a share of each client's examples can be held out. The draw depends on the seed,
the number of clients, and a client's index among all clients.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import draws
from tff_adaptive_tasks import errors, task as task_lib

UnitStarts = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class ClientSplit:
  """The result of `split_clients`: clients that train, and clients that never train.

  Attributes:
    train: The clients that train, with the examples that they train on.
    heldout: Those training clients that have held-out examples, with only these; None without any.
    unseen: The clients that never train, with all examples. If examples are held out, only clients
      that have some, with their held-out examples. None if there are no such clients.
    unseen_rest: The clients of `unseen` with the examples that are not held out; None without any.
  """

  train: task_lib.ClientData
  heldout: task_lib.ClientData | None
  unseen: task_lib.ClientData | None
  unseen_rest: task_lib.ClientData | None


def split_clients(
  clients: task_lib.ClientData,
  *,
  seed: int,
  heldout_clients: float = 0.0,
  heldout_examples: float = 0.0,
  unit_starts: UnitStarts | None = None,
) -> ClientSplit:
  """Splits clients into training and unseen clients, and can hold out examples of each client.

  Args:
    clients: All clients.
    seed: Seeds the draw, >= 0.
    heldout_clients: The share of clients that never train, in [0, 1); at least one if it is not 0.
    heldout_examples: The share of each client's examples that is held out, in [0, 1); their number
      is rounded down. Examples of clients that never train are held out, too.
    unit_starts: See `Task`. Examples of one unit stay together.

  Raises:
    DataError: If no client would train, or no training client has enough examples to hold out.
  """
  ids = list(clients.client_ids)
  count = 0
  if heldout_clients:
    count = max(1, round(heldout_clients * len(ids)))
  if count >= len(ids):
    raise errors.DataError(
      f'{count} of {len(ids)} clients would be held out: hold out a smaller share.'
    )
  # By index, not by id: the draw is the same for renamed clients.
  drawn = draws.generator(seed, draws.HELDOUT_CLIENTS).choice(len(ids), count, replace=False)
  unseen = [ids[i] for i in sorted(drawn)]
  seen = [c for c in ids if c not in set(unseen)]
  if not heldout_examples:
    if not unseen:
      return ClientSplit(clients, None, None, None)
    return ClientSplit(_Part(clients, seen), None, _Part(clients, unseen), None)
  held = _Heldout(clients, seed, heldout_examples, unit_starts)
  # A client with few examples may have none to hold out.
  seen_held = [client for client in seen if held.num_examples(client)]
  unseen_held = [client for client in unseen if held.num_examples(client)]
  if not seen_held:
    raise errors.DataError(
      f'no client has enough examples to hold out {heldout_examples:g} of them: hold out more.'
    )
  train = _Part(clients, seen, held)
  heldout = _Part(clients, seen_held, held, is_heldout=True)
  if not unseen_held:
    return ClientSplit(train, heldout, None, None)
  return ClientSplit(
    train,
    heldout,
    _Part(clients, unseen_held, held, is_heldout=True),
    _Part(clients, unseen_held, held),
  )


class _Heldout:
  """Decides which examples of each client are held out."""

  def __init__(
    self, clients: task_lib.ClientData, seed: int, share: float, unit_starts: UnitStarts | None
  ):
    self._clients = clients
    self._seed = seed
    self._share = share
    self._unit_starts = unit_starts
    self._positions = {c: i for i, c in enumerate(clients.client_ids)}
    self._sizes: dict[str, int] = {}  # A cache, used with `unit_starts`.

  def num_examples(self, client_id: str) -> int:
    if self._unit_starts is None:
      return self._count(self._clients.num_examples(client_id))
    # With units the number of held-out examples is known from the inputs only.
    if client_id not in self._sizes:
      x = self._clients.load(client_id)['x']
      self._sizes[client_id] = int(self.mask(client_id, x).sum())
    return self._sizes[client_id]

  def mask(self, client_id: str, x: Any) -> np.ndarray:
    """Returns bool [n], True for held-out examples; `x` has the client's inputs [n, ...]."""
    units = np.arange(len(x))
    if self._unit_starts is not None:
      # Examples before the first beginning belong to the first unit.
      units = np.maximum(np.cumsum(np.asarray(self._unit_starts(x))) - 1, 0)
    number = int(units[-1]) + 1
    position = self._positions[client_id]
    generator = draws.generator(self._seed, draws.HELDOUT_EXAMPLES, position)
    return np.isin(units, generator.choice(number, self._count(number), replace=False))

  def _count(self, number: int) -> int:
    # The small number is for shares such as 0.29 * 100 = 28.999...; one example stays.
    return min(math.floor(self._share * number + 1e-9), number - 1)


class _Part(task_lib.ClientData):
  """Some of the clients, with all examples, with only those held out, or with all but those."""

  def __init__(
    self,
    clients: task_lib.ClientData,
    ids: Sequence[str],
    heldout: _Heldout | None = None,
    is_heldout: bool = False,
  ):
    self._clients = clients
    self._ids = ids
    self._known = set(ids)
    self._heldout = heldout
    self._is_heldout = is_heldout

  @property
  def client_ids(self) -> Sequence[str]:
    return self._ids

  def num_examples(self, client_id: str) -> int:
    count = self._clients.num_examples(client_id)
    if self._heldout is None:
      return count
    num_held = self._heldout.num_examples(client_id)
    if self._is_heldout:
      return num_held
    return count - num_held

  def load(self, client_id: str) -> task_lib.ExampleArrays:
    if client_id not in self._known:
      raise errors.DataError(f'client {client_id!r} is not in this part of the clients.')
    arrays = self._clients.load(client_id)
    if self._heldout is None:
      return arrays
    is_here = self._heldout.mask(client_id, arrays['x']) == self._is_heldout
    return task_lib.example_arrays(arrays['x'][is_here], arrays['y'][is_here])
