"""Loops as frames: the same numbers and the same effects, and no node for what does not change."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.engine.graph import loop_frames

DATA = np.arange(6, dtype=np.float32)


def sums(n, data):
  """The plain case: data that are read, a sum and a number that change."""
  return tf.while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s + data[i % 6] * 0.5), (0, 0.0))


def swaps(n, data):
  """Results that are other arguments, one that the body takes from what it only reads."""
  return tf.while_loop(
    lambda i, *_: i < n, lambda i, a, b, c: (i + 1, b, a, data), (0, data, data * 2, data * 3)
  )


def hands_on(n, data):
  """A variable that is returned as it was, and read by the condition."""
  return tf.while_loop(lambda i, m, x: i < m, lambda i, m, x: (i + 2, m, x), (0, n, data))


def nested(n, data):
  """A loop in a loop's body, whose unchanged results are the outer one's next variables."""

  def outer(i, total, kept):
    _, inner, same = tf.while_loop(
      lambda j, *_: j < i, lambda j, s, d: (j + 1, s + d[j % 6], d), (0, 0.0, data)
    )
    return i + 1, total + inner, same

  return tf.while_loop(lambda i, *_: i < n, outer, (0, 0.0, data * 2))


def in_a_branch(n, data):
  """A condition in a loop in a condition."""

  def body(i, s):
    return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: s + data[0], lambda: s * 2 + 1)

  return tf.cond(
    n < 100, lambda: tf.while_loop(lambda i, _: i < n, body, (0, 1.0)), lambda: (n, 0.0)
  )


def grows(n, data):
  """A variable whose shape changes from step to step."""
  return tf.while_loop(
    lambda i, _: i < n,
    lambda i, x: (i + 1, tf.concat([x, data[:1]], 0)),
    (0, data),
    shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
  )


def gathers(n, data):
  """A list that grows, and shapes that are computed of what changes."""

  def body(i, array):
    drawn = tf.random.stateless_uniform(tf.stack([i % 3 + 1]), tf.stack([i, 3]))
    return i + 1, array.write(i, tf.reduce_sum(drawn) + tf.reduce_sum(tf.zeros(tf.shape(data))))

  array = tf.TensorArray(tf.float32, size=n)
  return tf.while_loop(lambda i, _: i < n, body, (0, array))[1].stack()


def at_most(n, data):
  """A number of steps that only TensorFlow counts."""
  return tf.while_loop(lambda x: x[0] < 1e6, lambda x: (x + data,), (data,), maximum_iterations=n)


def calling(n, data):
  """Functions in the body and in the condition, with operations that have no inputs."""
  noise = tf.function(lambda s: s + 0.0 * tf.random.uniform([]), autograph=False)
  constant = tf.function(lambda: tf.reduce_sum(data) + tf.ones([]), autograph=False)
  return tf.while_loop(
    tf.function(lambda i, _: i < n, autograph=False),
    lambda i, s: (i + 1, noise(s) + constant()),
    (0, 0.0),
  )


def looks_up(n, data):
  """Operations that TensorFlow places with an argument of the body, which no node stands for."""

  def body(i, table):
    with tf.GradientTape() as tape:
      tape.watch(table)
      loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.stack([i % 6, 2])) ** 2)
    return i + 1, table - 0.1 * tf.convert_to_tensor(tape.gradient(loss, table))

  return tf.while_loop(lambda i, _: i < n, body, (0, data[:, tf.newaxis]))


LOOPS = [looks_up, sums, swaps, hands_on, nested, in_a_branch, grows, gathers, at_most, calling]


def computation(loop):
  types = [np.int32, tff.TensorType(np.float32, DATA.shape)]
  return tff.tensorflow.computation(loop, types)


@pytest.mark.parametrize('n', [0, 1, 5])
@pytest.mark.parametrize('loop', LOOPS)
def test_results_are_those_of_tensorflow(graph, loop, n):
  found = engines.run(graph, computation(loop), n, DATA)
  expected = tf.function(loop, autograph=False)(tf.constant(n), tf.constant(DATA))
  assert len(tf.nest.flatten(found)) == len(tf.nest.flatten(expected))
  for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('loop', LOOPS)
def test_results_at_clients_are_those_of_tensorflow(graph, loop):
  types = [np.int32, tff.TensorType(np.float32, DATA.shape)]
  local = tff.tensorflow.computation(lambda n, data: tf.nest.flatten(loop(n, data))[-1], types)

  @tff.federated_computation(tff.FederatedType(types, tff.CLIENTS))
  def at_clients(pairs):
    return tff.federated_map(local, pairs)

  pairs = [(n, (n + 1) * DATA) for n in (0, 1, 5)]
  found = engines.run(graph, at_clients, [list(pair) for pair in pairs])
  for result, pair in zip(found, pairs, strict=True):
    expected = tf.function(loop, autograph=False)(*map(tf.constant, pair))
    np.testing.assert_array_equal(result, tf.nest.flatten(expected)[-1])


def reads(n, data):
  """The elements of a dataset, read by steps that else read nothing that changes."""
  del data
  spec = {'output_types': [tf.int64], 'output_shapes': [tf.TensorShape([])]}
  iterator = tf.raw_ops.AnonymousIteratorV3(**spec)
  elements = tf.data.experimental.to_variant(tf.data.Dataset.range(100))
  make = tf.raw_ops.MakeIterator(dataset=elements, iterator=iterator)
  with tf.control_dependencies([make]):
    iterator = tf.identity(iterator)

  def following():
    return tf.raw_ops.IteratorGetNext(iterator=iterator, **spec)[0]

  start = (0, tf.constant(0, tf.int64))
  _, total = tf.while_loop(lambda i, _: i < n, lambda i, t: (i + 1, t + following()), start)
  with tf.control_dependencies([total]):
    return total, following()


def assigns(n, data):
  """A variable that the steps count in; nothing but the loop's end says that they are done."""
  variable = tf.Variable(tf.zeros(DATA.shape))

  def body(i):
    with tf.control_dependencies([variable.assign_add(data)]):
      return (i + 1,)

  (i,) = tf.while_loop(lambda i: i < n, body, (0,))
  with tf.control_dependencies([i]):
    return variable.read_value()


def effect_alone(n, data):
  """A step's assignment that no result waits for."""
  variable = tf.Variable(tf.zeros(DATA.shape))

  def body(i):
    variable.assign_add(data)
    return (i + 1,)

  (i,) = tf.while_loop(lambda i: i < n, body, (0,), parallel_iterations=1)
  with tf.control_dependencies([i]):
    return variable.read_value()


def effect_before_what_stays(n, data):
  """Steps' assignments, where only a result that is handed on as it was is waited for."""
  variable = tf.Variable(tf.zeros(DATA.shape))

  def body(i, kept):
    with tf.control_dependencies([variable.assign_add(data)]):
      return i + 1, kept

  _, kept = tf.while_loop(lambda i, _: i < n, body, (0, data))
  with tf.control_dependencies([kept]):
    return variable.read_value()


def effect_before_a_loop(n, data):
  """Steps' assignments before a loop that reads, which waits for what it hands on."""
  variable = tf.Variable(tf.zeros(DATA.shape))

  def assign(i, kept):
    with tf.control_dependencies([variable.assign_add(data)]):
      return i + 1, kept

  def read(i, kept, found):
    return i + 1, kept, found + variable.read_value() + 0.0 * kept

  _, kept = tf.while_loop(lambda i, _: i < n, assign, (0, data))
  return tf.while_loop(lambda i, *_: i < 1, read, (0, kept, tf.zeros(DATA.shape)))[2]


def effect_of_the_condition(n, data):
  """What the condition assigns, also when it ends the loop."""
  variable = tf.Variable(-DATA)  # It is asked once more than there are steps.

  def condition(i):
    variable.assign_add(data)
    return i < n

  (i,) = tf.while_loop(condition, lambda i: (i + 1,), (0,), parallel_iterations=1)
  with tf.control_dependencies([i]):
    return variable.read_value()


@pytest.mark.parametrize('n', [0, 1, 5])
def test_a_step_that_is_not_taken_has_no_effects(graph, n):
  comp = tff.tensorflow.computation(reads, [np.int32, np.float32])
  total, following = engines.run(graph, comp, n, 0.0)
  assert (total, following) == (sum(range(n)), n)


@pytest.mark.parametrize('n', [0, 1, 5])
@pytest.mark.parametrize(
  'loop',
  [assigns, effect_alone, effect_before_what_stays, effect_before_a_loop, effect_of_the_condition],
)
def test_all_steps_have_had_their_effects(graph, loop, n):
  found = engines.run(graph, computation(loop), n, DATA)
  np.testing.assert_array_equal(found, n * DATA)


def test_what_does_not_change_enters_once_and_what_changes_each_step():
  loop = tf.function(sums, autograph=False)
  specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([6])]
  graph_def = loop.get_concrete_function(*specs).graph.as_graph_def()
  moved = loop_frames.replace_loops(graph_def)
  ops = [node.op for node in graph_def.node]
  assert 'While' not in ops
  assert 'StatelessWhile' not in ops
  enters = {n.input[0]: n.attr['is_constant'].b for n in graph_def.node if n.op == 'Enter'}
  assert enters['data']
  assert enters['n']
  # TensorFlow's own counter is there until the graph is pruned: nothing reads it.
  assert sum(enters.values()) == len(enters) - ops.count('NextIteration')
  names = {node.name for node in graph_def.node}
  assert {new.split(':')[0].lstrip('^') for new in moved.values()} <= names


@pytest.mark.parametrize(('loop', 'is_marked'), [(sums, False), (calling, True)])
def test_loops_that_tensorflow_would_keep_and_those_that_call_functions_stay(loop, is_marked):
  graph_def = tf.compat.v1.GraphDef()
  specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([6])]
  graph = tf.function(loop, autograph=False).get_concrete_function(*specs).graph
  graph_def.CopyFrom(graph.as_graph_def())
  (node,) = (node for node in graph_def.node if 'While' in node.op)
  if not is_marked:
    del node.attr['_lower_using_switch_merge']
  before = graph_def.SerializeToString(deterministic=True)
  assert loop_frames.replace_loops(graph_def) == {}
  assert graph_def.SerializeToString(deterministic=True) == before
