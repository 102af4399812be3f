"""A schedule of the server's rate counts rounds, those without a usable update too."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import optimizers
from tff_adaptive.algorithms import finalizer

KEPT = (np.float32([7]),)  # A weight that is not trained.
WEIGHTS = tff.learning.models.ModelWeights((np.float32([[1, -2], [3, 4]]), np.float32([0.5])), KEPT)
# The second is refused.
UPDATES = [
  (np.full([2, 2], value, np.float32), np.float32([other]))
  for value, other in ((0.3, -1), (0.1, np.inf), (-0.2, 0.4))
]


def _weights_type(*shapes):
  trainable = tuple((np.float32, shape) for shape in shapes)
  return tff.types.to_type(tff.learning.models.ModelWeights(trainable, ((np.float32, [1]),)))


def thetas(graph, optimizer, updates):
  """The first weight after each update."""
  process = finalizer.build(optimizer, _weights_type([2, 2], [1]))

  def steps():
    state = process.initialize()
    weights = WEIGHTS
    seen = []
    for update in updates:
      output = process.next(state, weights, update)
      state = output.state
      weights = output.result
      seen.append(np.asarray(weights.trainable[0]))
    return seen

  return engines.run(graph, steps)


def test_a_round_with_nobody_counts_for_the_schedule(graph):
  def rest(t):
    return tf.where(tf.equal(t, 2), 0.0, 1.0)

  first, refused, third, fourth = thetas(graph, optimizers.build_sgdm(rest), [*UPDATES, UPDATES[0]])
  np.testing.assert_array_equal(refused, first)
  np.testing.assert_array_equal(third, first)  # Round 2, in which the rate is 0.
  assert np.any(fourth != third)


def test_a_schedule_that_stays_leaves_all_else_as_it_is_without(graph):
  """Moments, steps and thus theta: an update that is refused moves none of them."""
  plain = thetas(graph, optimizers.build_adam(0.1, tau=1e-2), UPDATES)
  scheduled = thetas(graph, optimizers.build_adam(lambda t: 0.1, tau=1e-2), UPDATES)
  np.testing.assert_array_equal(plain, scheduled)
  assert np.any(plain[2] != plain[1])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
  'optimizer',
  [optimizers.build_yogi(0.1), tff.learning.optimizers.build_adamw(0.1)],
  ids=['yogi', 'TFF adamw'],
)
def test_without_a_schedule_it_is_tffs_own(graph, optimizer):
  weights_type = _weights_type([2, 2], [1])
  ours = finalizer.build(optimizer, weights_type)
  theirs = tff.learning.templates.build_apply_optimizer_finalizer(optimizer, weights_type)
  assert ours.next.type_signature == theirs.next.type_signature

  def steps(process):
    state = process.initialize()
    weights = WEIGHTS
    seen = []
    for update in UPDATES:
      output = process.next(state, weights, update)
      state = output.state
      weights = output.result
      hparams = process.get_hparams(state)
      state = process.set_hparams(state, {**hparams, 'learning_rate': np.float32(0.05)})
      seen.append((weights, hparams, output.measurements))
    return seen, state

  actual = engines.run(graph, steps, ours)
  expected = engines.run(graph, steps, theirs)
  engines.assert_same(actual, expected, rtol=0, atol=0)
  assert [int(measured['update_non_finite']) for _, _, measured in actual[0]] == [0, 1, 0]


class Halved(tff.learning.optimizers.Optimizer):
  """SGD; a step that is longer than 1 is halved, by an `if` of Python's."""

  def initialize(self, specs):
    return collections.OrderedDict(learning_rate=np.float32(1.0))

  def next(self, state, weights, gradients):
    rate = state['learning_rate']
    if tf.linalg.global_norm(tf.nest.flatten(gradients)) > 1.0:
      rate = rate / 2
    return state, tf.nest.map_structure(lambda w, g: w - rate * g, weights, gradients)

  def get_hparams(self, state):
    return state

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(hparams)


def test_an_optimizer_may_want_autograph(graph):
  process = finalizer.build(Halved(), _weights_type([1]))
  weights = tff.learning.models.ModelWeights((np.float32([4]),), KEPT)

  def steps():
    updates = [(np.float32([length]),) for length in (0.5, 2)]
    outputs = [process.next(process.initialize(), weights, update) for update in updates]
    return [float(output.result.trainable[0][0]) for output in outputs]

  assert engines.run(graph, steps) == [3.5, 3.0]
