"""Traces of the computations used last."""

import numpy as np
import tensorflow_federated as tff

from tff_adaptive.engine.graph import cache


def test_what_was_not_used_for_longest_goes_first(monkeypatch):
  monkeypatch.setattr(cache, '_CAPACITY', 2)
  entries = cache.Cache()
  comp = tff.tensorflow.computation(lambda x: x, np.int32)
  for form in ('a', 'b', 'a', 'c'):  # With c, b goes.
    entries.of(comp, form)['trace'] = form
  assert entries.of(comp, 'a') == {'trace': 'a'}
  assert entries.of(comp, 'c') == {'trace': 'c'}
  assert entries.of(comp, 'b') == {}
