"""The sources of clients' values in a worker: opened once, with what they gave last and give next.

A source comes from the trainer by way of Ray's object store: what it holds as arrays is there once
for all workers of a node. All loading is done by one thread, so that a source need not be safe for
several, and values can be prepared while others are trained on.
"""

import collections
import concurrent.futures
import contextlib
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import cachetools

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import errors

CACHE_BYTES = 256 * 10**6
_SOURCES_KEPT = 4  # A run has two: examples and states.

_opened: collections.OrderedDict[str, 'OpenSource'] = collections.OrderedDict()


class OpenSource:
  """A source, and values of it within a bound."""

  def __init__(self, source: Any, cache_bytes: int = CACHE_BYTES):
    """Takes an opened source.

    Args:
      source: See `client_references.Source`.
      cache_bytes: Of values that are kept, those used last; of a `StoringSource`, whose keys change
        with each round, those only that were prepared and have not been asked for. So much the
        values that are being loaded take too.
    """
    self.source = source
    self._is_storing = isinstance(source, client_references.StoringSource)
    self._cache = cachetools.LRUCache(cache_bytes, getsizeof=num_bytes)
    self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='client_values')
    self._loads = 0  # Asked for so far.

  def load(self, keys: Sequence[Any]) -> list[Any]:
    """Returns the values of keys."""
    self._loads += 1  # Preparing ends.
    return self._thread.submit(self._load, list(keys)).result()

  def prepare(self, keys: Sequence[Any]) -> None:
    """Begins to load what will be asked for soon, as far as there is room for it."""
    self._thread.submit(self._prepare, list(keys), self._loads)

  def close(self) -> None:
    """Ends preparing, and the thread: it is not used again."""
    self._loads += 1
    self._thread.shutdown(wait=False)

  def _load(self, keys: list[Any]) -> list[Any]:
    found = {key: self._cache[key] for key in keys if key in self._cache}
    missing = [key for key in keys if key not in found]
    found.update(zip(missing, self.source.load(missing) if missing else []))
    for key in keys:
      if self._is_storing:
        self._cache.pop(key, None)
      else:
        self._keep(key, found[key])
    return [found[key] for key in keys]

  def _prepare(self, keys: list[Any], loads: int) -> None:
    room = self._cache.maxsize // 2
    for key in keys:
      if room <= 0 or self._loads != loads:
        return
      value = self._cache[key] if key in self._cache else self.source.load([key])[0]
      self._keep(key, value)
      room -= num_bytes(value)

  def _keep(self, key: Any, value: Any) -> None:
    with contextlib.suppress(ValueError):  # It is larger than all that is kept may be.
      self._cache[key] = value


def opened(name: str, references: Mapping[str, Any]) -> OpenSource:
  """Returns a source, which is opened if it has not been; that not used for longest goes."""
  if name not in _opened:
    _opened[name] = OpenSource(_open(references[name][0]))
    while len(_opened) > _SOURCES_KEPT:
      _opened.popitem(last=False)[1].close()
  _opened.move_to_end(name)
  return _opened[name]


def _open(reference: Any) -> Any:
  import ray

  octets, buffers = ray.get(reference)
  try:
    return pickle.loads(octets, buffers=buffers)
  except Exception as error:  # Whatever it raises: files that are not there, or differ.
    reason = ' '.join(str(error).split())
    raise errors.WorkerError(
      f'Worker process {os.getpid()} on {ray.util.get_node_ip_address()} cannot open what clients'
      f' have: {reason}'
    ) from None


def num_bytes(value: Any) -> int:
  """The bytes of what has some in nested lists, tuples and mappings; other values count 64."""
  if isinstance(value, Mapping):
    value = list(value.values())
  if isinstance(value, (list, tuple)):
    return sum(map(num_bytes, value))
  return len(value) if isinstance(value, bytes) else getattr(value, 'nbytes', 64)
