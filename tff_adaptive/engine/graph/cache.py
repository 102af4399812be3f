"""What was made of the computations used last: their traces, say."""

import collections
from typing import Any

import tensorflow_federated as tff

_CAPACITY = 64


class Cache:
  """A dictionary for each of the computations (and forms of their arguments) used last."""

  def __init__(self) -> None:
    # An entry holds its computation too, so that no other can get its id.
    self._entries: collections.OrderedDict[Any, tuple[Any, dict]] = collections.OrderedDict()

  def of(self, comp: tff.Computation, form: Any = None) -> dict:
    """Returns the computation's dictionary for a form, an empty one at first."""
    key = id(comp), form
    _, entry = self._entries.setdefault(key, (comp, {}))
    self._entries.move_to_end(key)
    while len(self._entries) > _CAPACITY:
      self._entries.popitem(last=False)
    return entry
