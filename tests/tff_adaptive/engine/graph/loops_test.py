"""Loops in the graph: a reduction of a dataset computes the same bits, and poolings stay fast.

A step of a loop that has a gradient of max pooling stays a function, so oneDNN computes it.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.engine.graph import loops


def in_loop(function, dataset):
  """Runs `function(dataset)` with reductions replaced; returns flat results and the graph."""

  def run(variant):
    return tf.nest.flatten(
      function(tf.data.experimental.from_variant(variant, dataset.element_spec))
    )

  spec = tf.TensorSpec([], tf.variant)
  traced = tf.function(run, autograph=False).get_concrete_function(spec)
  graph_def = traced.graph.as_graph_def()
  loops.replace_reductions(graph_def)
  wrapped = tf.compat.v1.wrap_function(
    lambda: tf.graph_util.import_graph_def(graph_def, name=''), []
  )
  tensor = wrapped.graph.get_tensor_by_name
  feeds = [tensor(t.name) for t in traced.inputs]
  fetches = [tensor(t.name) for t in traced.outputs]
  replaced = wrapped.prune(feeds, fetches)
  results = replaced(tf.data.experimental.to_variant(dataset), *traced.captured_inputs)
  return results, graph_def


def ops_called(graph_def):
  """The ops of a graph and of the functions that it calls, but not of a dataset's elements."""
  functions = {f.signature.name: f.node_def for f in graph_def.library.function}
  ops = []
  pending = list(graph_def.node)
  while pending:
    node = pending.pop()
    ops.append(node.op)
    if 'PartitionedCall' in node.op:
      pending.extend(functions[node.attr['f'].func.name])
  return ops


def assert_same(function, dataset):
  """Asserts that the loop gives what eager TensorFlow gives, in values, dtypes and shapes."""
  expected = tf.nest.flatten(function(dataset))
  actual, graph_def = in_loop(function, dataset)
  ops = ops_called(graph_def)
  assert 'ReduceDataset' not in ops
  assert 'While' in ops
  assert len(actual) == len(expected)
  for one, other in zip(actual, expected):
    np.testing.assert_array_equal(one.numpy(), other.numpy(), strict=True)
  return graph_def


def numbers(n):
  return tf.data.Dataset.from_tensor_slices(np.arange(1, n + 1, dtype=np.float32))


def not_commutative(total, x):
  return total * 1.5 + tf.reduce_sum(tf.sin(x))


@tf.function
def inner(d, start):
  return d.reduce(start, not_commutative) * 2.0


def of_ranges(total, x):
  return not_commutative(total, tf.data.Dataset.range(3).reduce(x, lambda s, i: s * 1.5))


REDUCTIONS = [
  *((length, lambda d: d.reduce(tf.constant(0.5), not_commutative)) for length in (0, 1, 7)),
  (7, lambda d: d.batch(3).reduce(tf.zeros([0]), lambda state, x: tf.concat([state, x], 0))),
  (4, tf.function(lambda d: inner(d, inner(d, tf.constant(1.0))) + 1.0)),
  (4, lambda d: d.reduce(tf.constant(0.0), of_ranges)),
]


@pytest.mark.parametrize('length, function', REDUCTIONS, ids=range(len(REDUCTIONS)))
def test_elements_in_order_of_growing_states_in_functions_and_of_reductions(length, function):
  assert_same(function, numbers(length))


def test_nested_state_and_elements():
  dataset = numbers(5).map(lambda x: {'b': (x, tf.stack([x, 2 * x])), 'a': tf.cast(x, tf.int64)})

  def add(state, element):
    (product, total), vector = state
    x, pair = element['b']
    return (product * x, total + element['a']), {'v': vector['v'] + pair}

  start = ((tf.constant(1.0), tf.constant(0, tf.int64)), {'v': tf.zeros([2])})
  assert_same(lambda d: d.reduce(start, add), dataset)


def test_an_element_is_read_after_the_step_before_it():
  variable = tf.Variable(0.0)
  options = tf.data.Options()  # By default tf.data reads ahead.
  options.experimental_optimization.apply_default_optimizations = False

  def step(total, x):
    slow = tf.linalg.inv(tf.eye(300) * x)[0, 1]  # It is 0.
    before = variable.read_value()
    variable.assign(x + before + slow)
    return total + x + 0.5 * before

  def reduce(d):
    variable.assign(1.0)
    d = d.map(lambda x: x + variable.read_value()).with_options(options)
    return d.reduce(tf.constant(0.0), step), variable.read_value()

  # The elements, and half of what the variable was before each.
  expected = 2 + 5 + 11 + 23 + 47 + 95 + (1 + 3 + 8 + 19 + 42 + 89) / 2, 184
  assert tuple(map(float, reduce(numbers(6)))) == expected
  assert_same(reduce, numbers(6))


BRANCHES = {
  'cond': lambda d: tf.cond(
    tf.equal(d.cardinality(), 4),
    lambda: d.reduce(tf.constant(0.5), not_commutative),
    lambda: tf.constant(-1.0),
  ),
  'while_loop': lambda d: tf.while_loop(
    lambda i, total: i < 2,
    lambda i, total: (i + 1, d.reduce(total, not_commutative)),
    (tf.constant(0), tf.constant(0.5)),
  ),
}


@pytest.mark.parametrize('length', [3, 4])
@pytest.mark.parametrize('name', BRANCHES)
def test_as_the_result_of_a_function(graph, name, length):
  """A TFF computation is a plain graph: a branch or body returns the reduction as it is."""
  type_spec = tff.SequenceType(np.float32)
  computation = tff.tensorflow.computation(BRANCHES[name], type_spec)
  result = engines.run(graph, computation, list(np.arange(1, length + 1, dtype=np.float32)))
  expected = BRANCHES[name](numbers(length))
  for one, other in zip(tf.nest.flatten(result), tf.nest.flatten(expected)):
    np.testing.assert_array_equal(one, other)


def test_a_reduction_inside_a_dataset_is_left_to_it():
  windows = lambda d: d.window(3).map(  # noqa: E731
    lambda w: w.reduce(tf.constant(0.5), not_commutative)
  )
  reduce = lambda d: windows(d).reduce(tf.constant(0.5), not_commutative)  # noqa: E731
  graph_def = assert_same(reduce, numbers(7))
  nodes = itertools.chain.from_iterable(f.node_def for f in graph_def.library.function)
  assert [node.op for node in nodes].count('While') == 1


def test_errors_of_a_step_and_of_an_element_are_raised():
  check = lambda x: tf.debugging.check_numerics(1.0 / (x - 3.0), 'here')  # noqa: E731
  with pytest.raises(tf.errors.InvalidArgumentError, match='here'):
    in_loop(lambda d: d.reduce(0.0, lambda s, x: s + check(x)), numbers(4))
  with pytest.raises(tf.errors.InvalidArgumentError, match='here'):
    in_loop(lambda d: d.map(check).reduce(0.0, lambda s, x: s + x), numbers(4))


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


def conditional_reduction(kernel, images):
  """As the loop over a client's batches, in which a batch without examples is no step."""

  def step(kernel, i):
    return tf.cond(i > 1, lambda: descend(kernel, images, i), lambda: kernel)

  return tf.data.Dataset.range(_STEPS, output_type=tf.int32).reduce(kernel, step)


REDUCTIONS = [reduction, conditional_reduction]
LOOPS = [while_loop, with_a_side_effect, calling_functions, *REDUCTIONS]


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
  result = engines.run(graph, computation(loop), *arguments)
  np.testing.assert_allclose(result, loop(*map(tf.constant, arguments)), rtol=1e-5)


@pytest.mark.parametrize('loop', LOOPS)
def test_the_body_calls_a_function_that_is_not_inlined(loop):
  graph_def = graph_def_of(loop)
  loops.set_apart(graph_def)
  loops.replace_reductions(graph_def)
  functions = {f.signature.name: f for f in graph_def.library.function}
  nodes = list(graph_def.node)
  for function in functions.values():
    nodes += function.node_def
  (body,) = {n.attr['body'].func.name for n in nodes if 'body' in n.attr}
  (call,) = (n for n in functions[body].node_def if loop not in REDUCTIONS or 'Call' in n.op)
  assert 'PartitionedCall' in call.op
  assert functions[call.attr['f'].func.name].attr['_noinline'].b


@pytest.mark.parametrize('gpus, pool', [([], tf.nn.avg_pool2d), (['a GPU'], tf.nn.max_pool2d)])
def test_other_loops_stay_and_with_a_gpu_all(monkeypatch, gpus, pool):
  monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: gpus)
  graph_def = graph_def_of(lambda *a: while_loop(*a, pool=pool))
  before = graph_def.SerializeToString(deterministic=True)
  loops.set_apart(graph_def)
  assert graph_def.SerializeToString(deterministic=True) == before
