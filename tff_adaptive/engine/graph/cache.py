"""What was made of the computations used last: their traces, say."""

from typing import Any

import cachetools
import tensorflow_federated as tff

_CAPACITY = 64


class Cache:
  """A dictionary for each of the computations (and forms of their arguments) used last."""

  def __init__(self) -> None:
    self._entries: Any = cachetools.LRUCache(_CAPACITY)

  def of(self, comp: tff.Computation, form: Any = None) -> dict:
    """Returns the computation's dictionary for a form, an empty one at first."""
    # The entry holds the computation too, so that no other can get its id.
    return self._entries.setdefault((id(comp), form), (comp, {}))[1]
