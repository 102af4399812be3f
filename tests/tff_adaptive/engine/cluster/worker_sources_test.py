"""A worker's source keeps what was used last within its bound, and prepares what comes next."""

import collections
import threading

import numpy as np
import pytest

from tff_adaptive.engine.cluster import worker_sources


class _Source:
  """Values of 100 bytes; each key that is loaded is noted."""

  def __init__(self):
    self.loaded = []
    self.may_go_on = threading.Event()
    self.may_go_on.set()

  def load(self, keys):
    self.may_go_on.wait(600)
    self.loaded += keys
    return [[collections.OrderedDict(x=np.full(100, key, np.int8))] for key in keys]


def _numbers(values):
  return [int(value[0]['x'][0]) for value in values]


def test_values_used_last_are_kept_within_the_bound():
  source = _Source()
  opened = worker_sources.OpenSource(source, cache_bytes=350)
  assert _numbers(opened.load([1, 2, 3])) == [1, 2, 3]
  assert _numbers(opened.load([1, 4])) == [1, 4]  # 2, the one not used for longest, goes.
  assert _numbers(opened.load([3, 1, 4, 2])) == [3, 1, 4, 2]
  assert source.loaded == [1, 2, 3, 4, 2]


def test_what_is_prepared_takes_half_the_bound_and_is_not_loaded_again():
  source = _Source()
  opened = worker_sources.OpenSource(source, cache_bytes=400)
  opened.prepare([1, 2, 3, 4])
  opened._thread.submit(lambda: None).result()  # One thread: what came before is done.
  assert source.loaded == [1, 2]
  assert _numbers(opened.load([2, 1])) == [2, 1]
  assert source.loaded == [1, 2]


class _Storing(_Source):
  def store(self, keys, values):
    return keys


def test_of_states_only_what_is_prepared_is_kept_until_it_is_asked_for():
  source = _Storing()
  opened = worker_sources.OpenSource(source, cache_bytes=1000)
  assert _numbers(opened.load([1, 2])) == [1, 2]
  opened.prepare([3, 4])
  opened._thread.submit(lambda: None).result()
  assert [*opened._cache] == [3, 4]
  assert opened._cache.currsize == 200
  assert _numbers(opened.load([4, 5])) == [4, 5]
  assert source.loaded == [1, 2, 3, 4, 5]
  assert [*opened._cache] == [3]
  assert opened._cache.currsize == 100


def test_the_source_not_used_for_longest_goes(monkeypatch):
  monkeypatch.setattr(worker_sources, '_opened', collections.OrderedDict())
  monkeypatch.setattr(worker_sources, '_open', lambda reference: _Source())
  references = {name: [None] for name in 'abcdef'}
  first = {name: worker_sources.opened(name, references) for name in 'abcd'}
  assert worker_sources.opened('a', references) is first['a']
  worker_sources.opened('e', references)
  assert [*worker_sources._opened] == ['c', 'd', 'a', 'e']
  with pytest.raises(RuntimeError, match='after shutdown'):  # Its thread has ended.
    first['b'].load([1])
  assert worker_sources.opened('b', references) is not first['b']


def test_preparing_ends_when_values_are_asked_for():
  source = _Source()
  opened = worker_sources.OpenSource(source, cache_bytes=10_000)
  source.may_go_on.clear()
  opened.prepare(list(range(50)))
  asked = threading.Thread(target=lambda: opened.load([77]))
  asked.start()
  while not opened._loads:  # Asked for.
    asked.join(0.001)
  source.may_go_on.set()
  asked.join()
  assert source.loaded[-1] == 77
  assert len(source.loaded) <= 2
  opened._thread.submit(lambda: None).result()
  assert source.loaded[-1] == 77
