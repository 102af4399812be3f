"""The compiled selection: the numbers of the uncompiled one, to the bit."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import compiler
from tff_adaptive.compression import selection
from tff_adaptive.engine.graph import imported_graph
from tff_adaptive.kernels import library

pytestmark = compiler.NEEDED


def values_of(kind, size):
  rng = np.random.default_rng(size)
  normal = rng.normal(size=size)
  is_sample = np.arange(size) % 16 == 0
  return {
    'normal': normal,
    'few values': rng.integers(-3, 4, size=size),
    'equal': np.full(size, -2.5),
    'zeros': np.where(rng.random(size) < 0.9, 0, normal),
    'tiny': normal * 2.0**-140,
    'sample below': np.where(is_sample, 1e-3 * normal, normal),
    'sample above': np.where(is_sample & (np.arange(size) < size // 9), 10 + normal, normal),
    'not finite': np.where(np.arange(size) % 97 == 0, np.nan, normal),
  }[kind].astype(np.float32)


KINDS = (
  'normal',
  'few values',
  'equal',
  'zeros',
  'tiny',
  'sample below',
  'sample above',
  'not finite',
)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('size', [97, 2**18 + 3])
def test_the_numbers_are_those_of_the_uncompiled_selection(kind, size):
  values = values_of(kind, size)
  parts = [tf.constant(part) for part in np.split(values, [size // 3, size // 3 + 1])]
  for k in (1, size // 20, size // 2, size):
    decoded = library.load().tff_adaptive_keep_largest(values=parts, k=k)
    wanted = selection.keep_largest(parts, k)
    for one, other in zip(decoded, wanted, strict=True):
      np.testing.assert_array_equal(one.numpy().view(np.int32), other.numpy().view(np.int32))


@pytest.fixture(scope='module')
def selecting():
  """A TFF computation that keeps the 1,000 largest of many numbers, of two tensors together."""

  @tff.tensorflow.computation(np.float32)
  def compute(scale):
    values = scale * tf.constant(values_of('few values', selection.LONG))
    half = selection.LONG // 2
    return tf.concat(selection.keep_largest([values[:half], values[half:]], 1000), 0)

  return compute


def imported(computation):
  return imported_graph.import_computation(computation.to_building_block())


def operations(graph):
  return {op.type for op in graph._main.graph.get_operations()}


def test_the_graph_engine_puts_the_operation_in_place_of_the_function(selecting):
  graph = imported(selecting)
  assert 'TffAdaptiveKeepLargest' in operations(graph)
  (decoded,) = graph([tf.constant(2.0)])
  (wanted,) = selection.keep_largest(
    [tf.constant(2 * values_of('few values', selection.LONG))], 1000
  )
  np.testing.assert_array_equal(decoded.numpy(), wanted.numpy())
  assert np.count_nonzero(decoded) == 1000


@pytest.mark.parametrize('lacking', ['compiler', 'CPU'])
def test_elsewhere_the_function_stays(selecting, monkeypatch, lacking):
  if lacking == 'compiler':
    monkeypatch.setattr(library, 'is_available', lambda: False)
  else:
    monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: [kind])
  graph = imported(selecting)
  assert 'TffAdaptiveKeepLargest' not in operations(graph)
  (decoded,) = graph([tf.constant(2.0)])
  assert np.count_nonzero(decoded) == 1000


def test_an_operation_in_a_function_of_the_graph_keeps_its_outputs():
  @tff.tensorflow.computation(np.float32)
  def compute(scale):
    values = scale * tf.constant(values_of('normal', selection.LONG))
    return tf.while_loop(
      lambda i, _: i < 2, lambda i, x: (i + 1, *selection.keep_largest([x], 9)), (0, values)
    )[1]

  (decoded,) = imported(compute)([tf.constant(1.0)])
  (wanted,) = selection.keep_largest([tf.constant(values_of('normal', selection.LONG))], 9)
  np.testing.assert_array_equal(decoded.numpy(), wanted.numpy())
