"""Clients take permits: so many are in work, the next begins when any is done, and sums stay."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import engine
from tff_adaptive.devices import threads
from tff_adaptive.engine.graph import permits


class Works:
  """What clients do, as a TFF computation: client i works for `seconds[i]`, or for None last."""

  def __init__(self, seconds, fails=None):
    self.seconds = seconds
    self.fails = fails
    self.events = []
    self._others_ended = threading.Event()
    self._graphs = []  # They keep the function alive.
    self._lock = threading.Lock()

  def _work(self, i):
    i = int(i)
    with self._lock:
      self.events.append(('begins', i))
    if self.seconds[i] is None:
      assert self._others_ended.wait(60)
    else:
      time.sleep(self.seconds[i])
    with self._lock:
      self.events.append(('ends', i))
      if len(self.events) == 2 * len(self.seconds) - 1:
        self._others_ended.set()
    if i == self.fails:
      raise ValueError('a client that fails')
    return np.float32(0.1) * np.float32(i)

  def computation(self):
    @tff.tensorflow.computation(np.float32)
    def work(i):
      self._graphs.append(tf.compat.v1.get_default_graph())
      result = tf.numpy_function(self._work, [i], tf.float32)
      return tf.ensure_shape(result, [])

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def total(clients):
      return tff.federated_sum(tff.federated_map(work, clients))

    return total

  def run(self, context):
    return engines.run(context, self.computation(), [float(i) for i in range(len(self.seconds))])

  def most_at_once(self):
    counts = np.cumsum([1 if kind == 'begins' else -1 for kind, _ in self.events])
    return max(counts)


@pytest.mark.skipif(threads.num_processors() < 2, reason='one client a thread of TensorFlow')
def test_a_client_begins_when_any_other_is_done():
  works = Works([None] + 7 * [0.02])
  results = works.run(engine.GraphContext(parallel_clients=2))
  assert works.most_at_once() == 2
  assert works.events[-1] == ('ends', 0)  # All others began and ended while it worked.
  np.testing.assert_allclose(results, np.float32(0.1) * 28, rtol=1e-6)


def test_the_window_of_one_slot_is_one_client():
  works = Works([0.05, 0.0, 0.0])
  works.run(engine.GraphContext(parallel_clients=1))
  assert works.events == [
    ('begins', 0),
    ('ends', 0),
    ('begins', 1),
    ('ends', 1),
    ('begins', 2),
    ('ends', 2),
  ]


def test_a_client_that_fails_ends_its_call_and_no_other():
  context = engine.GraphContext(parallel_clients=2)
  for fails in (0, 3):
    with pytest.raises(tf.errors.OpError, match='a client that fails'):
      Works(20 * [0.01], fails).run(context)
    works = Works(20 * [0.0])
    works.run(context)
    assert works.most_at_once() <= 2
    assert len(works.events) == 40


def test_each_call_has_permits_of_its_own():
  free = permits.Permits(2)
  with free.of_a_call() as first, free.of_a_call() as second:
    assert first is not second
  with free.of_a_call() as third:
    assert third is first or third is second
  with pytest.raises(KeyError), free.of_a_call() as fourth:
    raise KeyError
  with free.of_a_call() as fifth, free.of_a_call() as sixth:
    assert fourth is not fifth
    assert fourth is not sixth
  assert tf.raw_ops.QueueSizeV2(handle=sixth) == 2


@pytest.mark.parametrize(
  ('types', 'expected'),
  [
    ([], 16),
    ([tff.to_type([tff.TensorType(np.float32, [2**24]), np.int32])], 3),  # 64 MiB and 4 bytes.
    ([tff.TensorType(np.float64, [2**22])], 8),
    ([tff.TensorType(np.float32, [None])], 3),
    ([tff.SequenceType(np.float32)], 3),
  ],
)
def test_results_that_wait_are_256_mebibytes_or_one_more_than_the_permits(types, expected):
  assert permits.window(types, 2) == expected
  assert permits.window(types, 20) == 21
