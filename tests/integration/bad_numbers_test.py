"""Clients whose numbers are not finite, or would not be in 16 bits, alone and in groups."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, models
from tff_adaptive.client import Batching, client_arrays, client_optimizer


def _linear(dtype=np.float32, **options):
  """Scores x w, the loss of an example is its score: a gradient is the mean of a batch's x."""
  parts = dict(
    initial_weights=(np.zeros(2, dtype),),
    forward=lambda w, x, training, seed: tf.linalg.matvec(x, w[0]),
    example_loss=lambda scores, y: scores,
    x_spec=tf.TensorSpec([None, 2], dtype),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  return models.Model(**{**parts, **options})


@pytest.fixture(params=[False, True], ids=['alone', 'in groups'])
def train(request):
  """Trains clients of these inputs, and gives all that is known of them, stacked."""

  def run(model, xs, rate, correction=None, state=(), broadcast=(), limit=None, **training):
    elements = []
    for i, x in enumerate(xs):
      (element,) = client_arrays(x, np.zeros(len(x), np.int32), i, limit)
      elements.append({name: tf.constant(value) for name, value in element.items()})

    def of(data, state):
      options = dict(broadcast=broadcast, rate=rate, **training)
      return small_problem.train_locally(data, model, correction, state, **options)

    if request.param:
      stacked = tf.nest.map_structure(lambda leaf: tf.stack([leaf] * len(xs)), state)
      return of(elements, stacked)
    results = [of(element, state) for element in elements]
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *results)

  return run


def test_a_number_that_no_step_saw_does_not_stay_in_scaffolds_states(train):
  """Option 1 takes the gradient over all examples, of which a limit leaves out the bad one."""
  good = np.ones((4, 2), np.float32)
  bad = good.copy()
  bad[3] = np.inf
  zeros = (tf.zeros([2]),)
  known = dict(state={'h': zeros}, broadcast=zeros, limit=2)
  batching = Batching(1, shuffle=False, step_limits=True)
  trained = train(
    _linear(), [good, bad], 0.5, corrections.Scaffold(3, 1), batching=batching, **known
  )
  assert trained.diverged.numpy().tolist() == [0, 1]
  for leaf in (trained.client_state['h'][0], trained.upload[0], trained.update[0]):
    np.testing.assert_array_equal(leaf, [[1, 1], [0, 0]])


class _Keeps(corrections.Correction):
  """Keeps or uploads 1 / (c - 1), c the number of a client's examples, and a count."""

  name = 'keeps'

  def __init__(self, uploads):
    self.uploads = uploads

  def client_update(self, client, g_i, steps):
    number = 1 / (client.num_examples - 1)
    state = dict(client.client_state, rounds=client.client_state['rounds'] + 1)
    # The second upload is one number for all, without an axis of the clients.
    if self.uploads:
      return (state, (number, tf.ones([])))
    return (dict(state, kept=number), ())


@pytest.mark.parametrize('uploads', [False, True])
def test_a_client_whose_state_or_upload_is_not_finite_has_diverged(train, uploads):
  state = collections.OrderedDict(kept=tf.zeros([]), rounds=tf.constant(0))
  xs = [np.full((n, 2), n, np.float32) for n in (1, 2, 3)]
  trained = train(_linear(), xs, 1.0, _Keeps(uploads), state, batching=Batching(4))
  assert trained.diverged.numpy().tolist() == [1, 0, 0]
  np.testing.assert_array_equal(trained.update[0], [[0, 0], [2, 2], [3, 3]])
  assert trained.client_state['rounds'].numpy().tolist() == [0, 1, 1]
  wanted = [0, 0, 0] if uploads else [0, 1, 0.5]
  assert trained.client_state['kept'].numpy().tolist() == wanted


def test_a_client_whose_kept_optimizer_state_is_not_finite_has_diverged(train):
  """The square of 1e25 overflows: Adam's v is infinite, and its step of g / sqrt(v) is 0."""
  optimizer = algorithms.build_client_optimizer('adam')
  first = client_optimizer.first_slots(optimizer, 'keep', corrections.chain(), (tf.zeros([2]),))
  slots = first.at_clients
  state = collections.OrderedDict(correction=(), optimizer=slots)
  xs = [np.full((1, 2), value, np.float32) for value in (1e25, 1.0)]
  options = dict(batching=Batching(1), optimizer=optimizer, optimizer_state='keep')
  trained = train(_linear(), xs, 0.5, state=state, **options)
  assert trained.diverged.numpy().tolist() == [1, 0]
  np.testing.assert_allclose(trained.update[0], [[0, 0], [0.5, 0.5]], rtol=1e-6)
  for before, after in zip(tf.nest.flatten(slots), tf.nest.flatten(trained.client_state)):
    np.testing.assert_array_equal(after[0], before)
    assert np.isfinite(after).all()


def test_a_client_without_examples_has_not_diverged_where_the_model_has_no_value_at_zero(train):
  """Beside others it is padded with zeros, at which x / |x| is NaN."""
  model = _linear(
    forward=lambda w, x, training, seed: tf.linalg.matvec(
      x / tf.norm(x, axis=-1, keepdims=True), w[0]
    )
  )
  xs = [np.ones((n, 2), np.float32) for n in (4, 0, 4)]
  trained = train(model, xs, 1.0, batching=Batching(4))
  assert trained.diverged.numpy().tolist() == [0, 0, 0]
  half = np.sqrt(0.5)
  np.testing.assert_allclose(trained.update[0], [[half] * 2, [0, 0], [half] * 2], rtol=1e-6)


def test_gradients_of_16_bits_are_clipped_though_their_squares_overflow(train):
  xs = [np.array([[300, 400]], np.float16)] * 2
  trained = train(_linear(np.float16), xs, 0.5, batching=Batching(1), clip_norm=1.0)
  assert not trained.diverged.numpy().any()
  np.testing.assert_allclose(trained.update[0], [[0.3, 0.4]] * 2, rtol=2e-3)


def test_weights_of_several_dtypes_are_clipped_together(train):
  """The gradient is (3, 4) in float32 and 12 in float64: 13 together."""
  model = _linear(
    initial_weights=(np.zeros(2, np.float32), np.zeros(1, np.float64)),
    forward=lambda w, x, training, seed: (
      tf.linalg.matvec(x, w[0]) + 12 * tf.cast(w[1][0], tf.float32)
    ),
  )
  xs = [np.array([[3, 4]], np.float32)] * 2
  trained = train(model, xs, 1.0, batching=Batching(1), clip_norm=6.5)
  np.testing.assert_allclose(np.concatenate(trained.update, 1), [[1.5, 2, 6]] * 2, rtol=1e-6)
