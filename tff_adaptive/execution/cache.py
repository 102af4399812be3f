"""What has been made of computations, for those used last."""

import collections
from typing import Any

import tensorflow_federated as tff

_KEPT = 64


class Cache:
  """A dictionary for each of the computations (and forms of their arguments) used last."""

  def __init__(self):
    # The computation is kept beside what was made of it, so that its id stays its own.
    self._entries: collections.OrderedDict[Any, tuple[Any, dict]] = collections.OrderedDict()

  def of(self, comp: tff.framework.ConcreteComputation, form: Any = None) -> dict:
    """Returns the computation's dictionary for a form, an empty one at first."""
    key = id(comp), form
    _, entry = self._entries.setdefault(key, (comp, {}))
    self._entries.move_to_end(key)
    while len(self._entries) > _KEPT:
      self._entries.popitem(last=False)
    return entry
