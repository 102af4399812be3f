"""A step of a loop that has a gradient of max pooling stays a function, so oneDNN computes it."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.engine.graph import loop_bodies

_STEPS = 5
_SHAPES = [(3, 3, 1, 4), (4, 8, 8, 1)]


def descend(kernel, images, i, pool=tf.nn.max_pool2d):
  """A step of gradient descent; its noise enters between the pooling and its gradient."""
  with tf.GradientTape() as tape:
    tape.watch(kernel)
    h = pool(tf.nn.relu(tf.nn.conv2d(images, kernel, 1, 'VALID')), 2, 2, 'VALID')
    noise = tf.random.stateless_uniform(tf.shape(h), tf.stack([i, 7]))
    loss = tf.reduce_sum(tf.where(noise < 0.5, h, 0.0) ** 2)
  return kernel - 0.001 * tape.gradient(loss, kernel)


def while_loop(kernel, images, **options):
  return tf.while_loop(
    lambda i, _: i < _STEPS,
    lambda i, kernel: (i + 1, descend(kernel, images, i, **options)),
    (0, kernel),
  )[1]


def with_a_side_effect(kernel, images):
  return while_loop(kernel, images + tf.random.uniform([]) * 0.0)


def calling_functions(kernel, images):
  inner = tf.function(lambda x: tf.nn.max_pool2d(x, 2, 2, 'VALID'), autograph=False)
  return while_loop(kernel, images, pool=lambda x, *_: inner(x))


def reduction(kernel, images):
  steps = tf.data.Dataset.range(_STEPS, output_type=tf.int32)
  return steps.reduce(kernel, lambda kernel, i: descend(kernel, images, i))


LOOPS = [while_loop, with_a_side_effect, calling_functions, reduction]


@pytest.fixture
def arguments():
  rng = np.random.default_rng(3)
  return [rng.standard_normal(shape).astype(np.float32) for shape in _SHAPES]


def computation(loop):
  """A new TFF computation, which the engine traces anew."""
  types = [tff.TensorType(np.float32, shape) for shape in _SHAPES]
  return tff.tensorflow.computation(lambda kernel, images: loop(kernel, images), types)


def graph_def_of(loop):
  specs = [tf.TensorSpec(shape) for shape in _SHAPES]
  return tf.function(loop, autograph=False).get_concrete_function(*specs).graph.as_graph_def()


@pytest.mark.parametrize('loop', LOOPS)
def test_numbers_are_those_of_tensorflow(graph, arguments, loop):
  found = engines.run(graph, computation(loop), *arguments)
  np.testing.assert_allclose(found, loop(*map(tf.constant, arguments)), rtol=1e-5)


@pytest.mark.parametrize('loop', LOOPS[:3])
def test_the_body_calls_a_function_that_is_not_inlined(loop):
  graph_def = graph_def_of(loop)
  loop_bodies.set_apart(graph_def)
  functions = {f.signature.name: f for f in graph_def.library.function}
  (body,) = (n.attr['body'].func.name for n in graph_def.node if 'body' in n.attr)
  (call,) = functions[body].node_def
  assert 'PartitionedCall' in call.op
  assert functions[call.attr['f'].func.name].attr['_noinline'].b


def assert_stays(graph_def):
  before = graph_def.SerializeToString(deterministic=True)
  loop_bodies.set_apart(graph_def)
  assert graph_def.SerializeToString(deterministic=True) == before


def test_other_loops_stay():
  assert_stays(graph_def_of(lambda *a: while_loop(*a, pool=tf.nn.avg_pool2d)))


def test_with_a_gpu_loops_stay(monkeypatch):
  monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: [kind])
  assert_stays(graph_def_of(while_loop))
