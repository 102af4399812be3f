import gc
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import engine
from tff_adaptive._utils import private_apis
from tff_adaptive.engine.graph import buffers


def _arrays(value, length=1000):
  return [np.full([length, 3], value, np.float32), np.full([1, 3], -value, np.float32)]


def test_memory_is_used_again_only_when_no_tensor_looks_there():
  pool = buffers.Buffers()
  held = pool.join(_arrays(1.0))
  before = held.numpy().copy()
  other = pool.join(_arrays(2.0))
  np.testing.assert_array_equal(held, before)
  assert len(pool._buffers) == 2
  view = tf.reshape(held, [-1])  # Shares the memory.
  del held
  third = pool.join(_arrays(3.0))
  assert len(pool._buffers) == 3
  assert [float(view[0]), float(other[0, 0])] == [1, 2]
  del view, third
  fourth = pool.join(_arrays(4.0))
  assert len(pool._buffers) == 3
  np.testing.assert_array_equal(fourth, np.concatenate(_arrays(4.0)))


def test_buffers_that_a_call_does_not_take_are_forgotten():
  pool = buffers.Buffers()
  for length in (10, 1000, 15):
    pool.join(_arrays(1.0, length))
  assert len(pool._buffers) == 2  # The last fits into the second.
  pool.collect()
  pool.join(_arrays(1.0, 5))
  pool.collect()
  assert [len(b) for b in pool._buffers] == [11 * 3 * 4 + 64]


@pytest.mark.parametrize('dtype', ['bool', 'uint8', 'int64', 'float16'])
def test_any_dtype_and_no_elements(dtype):
  pool = buffers.Buffers()
  parts = [np.ones([2, 1], dtype), np.zeros([0, 1], dtype), np.ones([1, 1], dtype)]
  joined = pool.join(parts)
  assert joined.dtype.name == dtype
  np.testing.assert_array_equal(joined, np.concatenate(parts))
  assert pool.join(parts[1:2]).shape == [0, 1]


def _wait_until_free(pool, seconds=10):
  """A thread of TensorFlow's may drop its tensor just after the call has returned."""
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    if set(private_apis.reference_counts(pool._buffers)) == {buffers._FREE}:
      return
    time.sleep(0.01)
  raise AssertionError(f'after {seconds} seconds a buffer is in use')


def test_a_call_leaves_nothing_behind_for_the_garbage_collector():
  vector = tff.types.TensorType(np.float32, [None])
  total = tff.tensorflow.computation(lambda x: tf.reduce_sum(x), vector)

  @tff.federated_computation(tff.FederatedType(vector, tff.CLIENTS))
  def sum_of_sums(x):
    return tff.federated_sum(tff.federated_map(total, x))

  context = engine.GraphContext()
  memory = set()
  gc.disable()
  try:
    with tff.framework.get_context_stack().install(context):
      for value in range(4):
        result = sum_of_sums([np.full([9 - value], value, np.float32)] * 2)
        assert float(result) == 2 * value * (9 - value)
        memory.update(buffer.ctypes.data for buffer in context._buffers._buffers)
        _wait_until_free(context._buffers)
  finally:
    gc.enable()
  assert len(memory) == 1
