"""Loads the data of clients, here or in another process."""

import collections
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tff_adaptive._utils import client_references
from tff_adaptive.client import client_arrays
from tff_adaptive.population import attacks
from tff_adaptive.training import protocols

# A client's id, its number, and (name, value) of each further entry of its data: `max_steps`, say.
DatasetKey: TypeAlias = tuple[str, int, tuple[tuple[str, Any], ...]]

LOADING = threading.Lock()  # Client data need not be safe for loading by several threads.


class ClientSource:
  """Loads clients' datasets. A copy of the source in another process loads the same datasets.

  The source can be pickled if `clients` can be.
  """

  def __init__(
    self,
    clients: protocols.ClientData,
    max_examples: int | None,
    attackers: attacks.Attackers | None = None,
    seed: int = 0,
  ):
    """Creates a source of each client's first `max_examples` examples, or all if that is None.

    The labels of the clients that `attackers` marks, by `seed`, are flipped if that is the attack.
    """
    self._attackers = attackers
    self._flipped_ids: frozenset[str] = frozenset()
    if attackers is not None and attackers.attack == attacks.LABEL_FLIP:
      self._flipped_ids = attacks.ids_of(attackers, clients.client_ids, seed)
    self._clients = clients
    self._max_examples = max_examples

  def load(self, keys: Sequence[DatasetKey]) -> list[Any]:
    """Returns the result of `client.client_arrays` for each key."""
    datasets = []
    for client_id, number, more in keys:
      arrays = self.examples(client_id)
      datasets.append(client_arrays(arrays['x'], arrays['y'], number, **dict(more)))
    return datasets

  def examples(self, client_id: str) -> dict[str, np.ndarray]:
    """Returns the examples on which a client trains, x and y."""
    with LOADING:
      arrays = self._clients.load(client_id)
    most = self._max_examples
    labels = arrays['y'][:most]
    if client_id in self._flipped_ids:
      assert self._attackers is not None
      labels = self._attackers.flipped(labels)
    return collections.OrderedDict(x=arrays['x'][:most], y=labels)

  def num_examples(self, client_id: str) -> int:
    """Returns the number of examples on which a client trains; nothing is loaded."""
    examples = self._clients.num_examples(client_id)
    if self._max_examples is not None:
      examples = min(examples, self._max_examples)
    return examples

  def reference(self, key: DatasetKey) -> client_references.ClientReference:
    """Returns a reference to a client's dataset; nothing is loaded."""
    return client_references.ClientReference(self, key, self.num_examples(key[0]))
