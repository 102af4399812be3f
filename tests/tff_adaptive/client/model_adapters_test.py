"""Models of three kinds give the gradients of the formula, and count the examples that count."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tests.helpers import small_problem
from tff_adaptive import engine, models
from tff_adaptive.client import model_adapters
from tff_adaptive.client.model_adapters import LocalStep

RNG = np.random.default_rng(4)
THETAS = RNG.normal(size=(3, sum(oracle.SIZES))).astype(np.float32)
X = RNG.normal(size=(3, 6, 5)).astype(np.float32)
Y = RNG.integers(3, size=(3, 6)).astype(np.int32)
COUNTS = (6, 4, 1)  # Of three clients: the other examples are padding.
# Each client's share of an example: 1 / n of its n examples, 0 of padding.
SHARES = np.less(np.arange(6), np.reshape(COUNTS, [3, 1])) / np.float32(COUNTS)[:, None]
SIZES = tf.constant(COUNTS, tf.float32)
SEEDS = tf.constant([[1, 2], [3, 4], [2, 3]])
SPEC = small_problem.SPEC
FORWARD = small_problem.model().forward


def _weights(theta):
  return tuple(tf.constant(w) for w in oracle.unpack(theta))


def _stacked(thetas):
  return tuple(tf.stack(w) for w in zip(*map(_weights, thetas)))


def _batch(i, n=None):
  return {'x': tf.constant(X[i, :n]), 'y': tf.constant(Y[i, :n])}


def _expected(i):
  """Gradient, and (loss, accuracy) over a client's examples: sums and counts."""
  n = COUNTS[i]
  x = X[i, :n].astype(np.float64)
  y = Y[i, :n]
  w, a, v, c = oracle.unpack(THETAS[i].astype(np.float64))
  scores = np.tanh(x @ w + a) @ v + c
  losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(n), y]
  sums = [losses.sum(), n, (scores.argmax(1) == y).sum(), n]
  return oracle.gradient(THETAS[i].astype(np.float64), x, y), sums


def _check(actual, expected):
  np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def _noisy(weights, x, training, seed):
  """The small problem's scores, doubled in training, shifted by the seed, of clipped gradients."""
  scores = small_problem.model().forward(weights, x, training, seed)
  if seed is None:
    shift = 0
  else:
    shift = tf.cast(tf.reduce_sum(seed), tf.float32)
  return _clipped(scores * (2 if training else 1) + shift * tf.constant([0.0, 0.1, 0.3]))


@pytest.mark.parametrize('i', range(3))
def test_a_masked_model_counts_the_examples_that_have_a_share(i):
  adapter = model_adapters.wrap(small_problem.model())
  gradient, sums = _expected(i)
  before = tf.constant([10.0, 20.0, 30.0, 40.0])
  gradients, _, metrics = adapter.gradients(
    _weights(THETAS[i]), (), LocalStep(_batch(i), (tf.constant(SHARES[i]), SIZES[i])), before
  )
  _check(oracle.pack(gradients), gradient)
  _check(metrics, before + tf.cast(sums, tf.float32))
  # The same batch without its padding.
  gradients, _, metrics = adapter.gradients(
    _weights(THETAS[i]), (), LocalStep(_batch(i, COUNTS[i])), adapter.start()
  )
  _check(oracle.pack(gradients), gradient)
  _check(metrics, sums)
  named = adapter.metric_sums(metrics, tf.constant(True))
  assert list(named) == ['loss', 'accuracy']
  _check(tf.stack(list(named.values())), np.reshape(sums, [2, 2]))
  _check(list(adapter.metric_finalizers(named).values()), np.divide(sums[::2], COUNTS[i]))


@pytest.mark.parametrize('in_group', [False, True])
def test_a_seeded_model_is_trained_with_its_seed_and_in_training_mode(in_group):
  adapter = model_adapters.wrap(small_problem.model(client_axis=False, forward=_noisy))
  theta = THETAS[0]
  shift = np.array([0, 0.1, 0.3]) * 5

  def loss(weights):
    scores = _clipped(2 * small_problem.model().forward(weights, X[0], True, None) + shift)
    return tf.reduce_mean(models.sparse_cross_entropy(tf.cast(scores, tf.float32), Y[0]))

  with tf.GradientTape() as tape:
    weights = _weights(theta)
    tape.watch(weights)
    expected = loss(weights)
  gradient = oracle.pack(tape.gradient(expected, weights))
  if in_group:
    adapter = adapter.for_groups()
    shares = (tf.fill([3, 6], 1 / 6), tf.fill([3], 6.0))
    stacked = _stacked([THETAS[1], THETAS[2], theta])
    batch = {'x': tf.constant(X[::-1]), 'y': tf.constant(Y[::-1])}
    step = LocalStep(batch, shares, SEEDS)
    gradients, _, metrics = adapter.gradients(stacked, (), step, adapter.start(3))
    gradients = [g[2] for g in gradients]
    metrics = metrics[2]
  else:
    step = LocalStep(_batch(0), None, SEEDS[2])
    gradients, _, metrics = adapter.gradients(weights, (), step, adapter.start())
  _check(oracle.pack(gradients), gradient)
  _check(metrics[0], 6 * expected)


@tf.custom_gradient
def _clipped(x):
  return x, lambda above: tf.clip_by_value(above, -0.01, 0.01)  # Not linear.


KINDS = {'linear': tf.identity, 'custom': _clipped, 'function': tf.function(_clipped)}
KINDS['float16'] = lambda x: tf.cast(tf.cast(x, tf.float16), tf.float32)


@pytest.mark.parametrize('kind', KINDS)
def test_a_factor_multiplies_the_loss_where_gradients_are_linear_else_the_gradients(kind):
  adapter = model_adapters.wrap(small_problem.model(forward=lambda *a: KINDS[kind](FORWARD(*a))))

  def gradients(factor):
    step = LocalStep(_batch(0), factor=factor)
    return adapter.gradients(_weights(THETAS[0]), (), step, adapter.start())[0]

  traced = tf.function(gradients, autograph=False)
  for compute in (traced, gradients):
    scaled = oracle.pack(compute(tf.constant(1e-3)))
    plain = oracle.pack(compute(None))
    np.testing.assert_allclose(scaled, 1e-3 * plain, rtol=1e-5)
  ops = traced.get_concrete_function(tf.TensorSpec([], tf.float32)).graph.get_operations()
  assert (kind != 'linear') == any(o.type == 'Mul' and o.outputs[0].shape == (5, 4) for o in ops)


def _functional(spec=SPEC):
  """A model of TFF with a weight that is not trained, and a count of examples as its metric.

  Its scores are the small problem's, plus that weight in training; its loss is a sum.
  """
  ours = small_problem.model()

  def predict(weights, x, training):
    scores = ours.forward(tuple(weights[0]), x, training, None)
    if training:
      return scores + weights[1][0]
    return 100 + 0 * scores

  @tf.function
  def update(state, labels, batch_output, sample_weight=None):
    del sample_weight
    values = (batch_output.num_examples, tf.reduce_sum(labels), batch_output.loss)
    total = tf.reduce_sum(batch_output.predictions)
    return collections.OrderedDict(
      (name, state[name] + tf.cast(v, tf.float32)) for name, v in zip(state, (*values, total))
    )

  names = ('examples', 'labels', 'loss', 'scores')
  return tff.learning.models.FunctionalModel(
    initial_weights=(ours.initial_weights[0], (np.array([0, 1, -1], np.float32),)),
    predict_on_batch_fn=tf.function(predict),
    loss_fn=lambda output, label, sample_weight=None: tf.reduce_sum(
      models.sparse_cross_entropy(output, label)
    ),
    metrics_fns=(
      tf.function(lambda: collections.OrderedDict((name, tf.zeros([])) for name in names)),
      update,
      tf.function(lambda state: state),
    ),
    input_spec=spec,
  )


@pytest.mark.parametrize('as_pair', [False, True])
def test_a_model_of_tff_is_given_its_weights_and_its_metrics_the_batch(as_pair):
  adapter = model_adapters.wrap(_functional(tuple(SPEC.values()) if as_pair else SPEC))
  weights = adapter.initial_weights()
  _check(oracle.pack(weights.trainable), small_problem.theta_0())
  _check(weights.non_trainable[0], [0, 1, -1])
  shift = tf.constant([0.5, 0.0, -2.0])
  batch = _batch(1)
  with tf.GradientTape() as tape:
    theta = _weights(THETAS[1])
    tape.watch(theta)
    scores = small_problem.model().forward(theta, X[1], True, None) + shift
    loss = tf.reduce_sum(models.sparse_cross_entropy(scores, Y[1]))
  step = LocalStep((batch['x'], batch['y']) if as_pair else batch)
  gradients, others, metrics = adapter.gradients(theta, (shift,), step, adapter.start())
  _check(others, [shift])
  _check(oracle.pack(gradients), oracle.pack(tape.gradient(loss, theta)))
  _check(list(metrics.values()), [6, Y[1].sum(), loss, tf.reduce_sum(scores)])
  for is_used in (True, False):
    sums = adapter.metric_sums(metrics, tf.constant(is_used))
    _check(list(sums.values()), [is_used * m for m in metrics.values()])


def _keras():
  """The small problem's perceptron after a normalisation of its inputs."""
  layer = tf.keras.layers.BatchNormalization(center=False, scale=False, epsilon=0.0)
  return small_problem.keras_model(layer)


def test_a_keras_model_is_given_its_weights_and_normalises_by_the_batch():
  adapter = model_adapters.wrap(_keras)
  assert adapter.input_spec == SPEC

  @tff.tensorflow.computation
  def train():
    start = adapter.start()
    assert not start
    initial = adapter.initial_weights().trainable
    moments = (tf.fill([5], 7.0), tf.fill([5], 9.0))
    step = LocalStep(_batch(0))
    gradients, moved, metrics = adapter.gradients(_weights(THETAS[0]), moments, step, start)
    with tf.control_dependencies(gradients):
      sums = [adapter.metric_sums(metrics, tf.constant(is_used)) for is_used in (True, False)]
    return initial, gradients, moved, sums

  with engine.graph_context():
    initial, gradients, moved, sums = train()
  _check(oracle.pack(initial), small_problem.theta_0())
  x = X[0].astype(np.float64)
  normal = (x - x.mean(0)) / x.std(0)
  _check(oracle.pack(gradients), oracle.gradient(THETAS[0].astype(np.float64), normal, Y[0]))
  # Keras's moving moments, from those that were given.
  _check(moved, [0.99 * 7 + 0.01 * x.mean(0), 0.99 * 9 + 0.01 * x.var(0)])
  assert [s['num_examples'] for s in sums] == [[6], [0]]


class _Undecorated(tff.learning.models.VariableModel):
  """One weight, and a count of examples: a variable, which is returned as it is."""

  input_spec = SPEC
  predict_on_batch = reset_metrics = None
  trainable_variables = non_trainable_variables = local_variables = ()

  def __init__(self):
    self._w = tf.Variable(tf.ones([5]))
    self._n = tf.Variable(0.0)
    self.trainable_variables = [self._w]
    self.local_variables = [self._n]

  def forward_pass(self, batch, training=True):
    scores = tf.linalg.matvec(batch['x'], self._w)
    self._n.assign_add(tf.cast(tf.shape(scores)[0], tf.float32))
    return tff.learning.models.BatchOutput(tf.reduce_mean(scores), scores, tf.shape(scores)[0])

  def report_local_unfinalized_metrics(self):
    return collections.OrderedDict(n=self._n)

  def metric_finalizers(self):
    return collections.OrderedDict(n=tf.function(lambda n: n))


def test_metrics_that_are_variables_are_read_after_training():
  adapter = model_adapters.wrap(_Undecorated)

  @tff.tensorflow.computation
  def train():
    metrics = adapter.start()
    step = LocalStep(_batch(0))
    (gradient,), _, metrics = adapter.gradients((tf.ones([5]),), (), step, metrics)
    with tf.control_dependencies([gradient]):
      return gradient, adapter.metric_sums(metrics, tf.constant(True))

  with engine.graph_context():
    gradient, sums = train()
  _check(gradient, X[0].mean(0))
  assert sums['n'] == len(X[0])


def _layers():
  """Weights that are frozen, moving statistics, and trained weights; their values are random."""
  dense = tf.keras.layers.Dense
  layers = [tf.keras.layers.Input([5]), dense(4, trainable=False)]
  return tf.keras.Sequential([*layers, tf.keras.layers.BatchNormalization(), dense(3)])


def _with_head(values):
  """The layers with these values but for the last, whose bias begins at other ones."""
  model = _layers()
  for layer, of_layer in zip(model.layers[:-1], values):
    layer.set_weights(of_layer)
  model.layers[-1].bias.assign([7.0, 8.0, 9.0])
  return model


@pytest.mark.parametrize('way', ['set_weights', 'h5', 'checkpoint', 'load_model', 'clone', 'head'])
@pytest.mark.sample(2)
def test_weights_that_a_model_function_loads_are_the_initial_ones(way, tmp_path):
  pretrained = _layers()
  wanted = [RNG.normal(1, 0.1, w.shape).astype(np.float32) for w in pretrained.get_weights()]
  pretrained.set_weights(wanted)
  by_layer = [layer.get_weights() for layer in pretrained.layers]
  path = str(tmp_path / {'h5': 'w.h5', 'checkpoint': 'w', 'load_model': 'm.keras'}.get(way, ''))

  def load():
    if way == 'load_model':
      return tf.keras.models.load_model(path, compile=False)
    if way == 'head':
      return _with_head(by_layer)
    if way == 'clone':
      model = tf.keras.models.clone_model(pretrained)
    else:
      model = _layers()
    if way in ('set_weights', 'clone'):
      model.set_weights(wanted)
    else:
      model.load_weights(path)
    return model

  if way == 'load_model':
    pretrained.save(path)
  elif way in ('h5', 'checkpoint'):
    pretrained.save_weights(path)
  adapter = model_adapters.wrap(
    lambda: tff.learning.models.from_keras_model(
      load(),
      input_spec=SPEC,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
  )
  with engine.graph_context():
    initial = tff.tensorflow.computation(adapter.initial_weights)()
  home = _layers()
  tff.learning.models.ModelWeights(*initial).assign_weights_to(home)
  initial = home.get_weights()
  if way == 'head':
    np.testing.assert_array_equal(initial[-1], [7, 8, 9])
    assert np.abs(initial[-2] - wanted[-2]).max() > 0.1  # It is drawn.
    initial = initial[:-2]
    wanted = wanted[:-2]
  for one, other in zip(initial, wanted, strict=True):
    np.testing.assert_array_equal(one, other)


def _nothing_to_train():
  frozen = tf.keras.layers.Dense(3, trainable=False)
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.Input([5]), frozen]),
    input_spec=SPEC,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )


def test_a_model_without_trainable_weights_is_refused():
  of_functions = small_problem.model(initial_weights=[])
  for model in (_nothing_to_train, of_functions):
    with pytest.raises(ValueError, match=r'no trainable weights.*: leave trainable=False out'):
      model_adapters.wrap(model)


@pytest.mark.parametrize(
  ('way', 'words'),
  [
    ('itself', 'returns a model that was made outside of it'),
    ('weights', 'reads the weights of a model that was made outside'),
    ('layers', 'reads the weights of a model that was made outside'),
  ],
)
def test_a_model_from_outside_of_the_function_is_refused(way, words):
  outside = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])

  def model_fn():
    model = outside
    if way != 'itself':
      model = tf.keras.models.clone_model(outside)
    if way == 'weights':
      model.set_weights(outside.get_weights())
    if way == 'layers':
      model.layers[0].set_weights(outside.layers[0].get_weights())
    spec = collections.OrderedDict(x=tf.TensorSpec([None, 3]), y=tf.TensorSpec([None, 1], tf.int32))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return tff.learning.models.from_keras_model(model, loss=loss, input_spec=spec)

  with pytest.raises(ValueError, match=words):
    model_adapters.wrap(model_fn)


def test_anything_else_is_refused():
  undecorated = _Undecorated()
  undecorated.__class__ = type('Callable', (_Undecorated,), {'__call__': lambda self: self})
  for model, words in (
    (tf.keras.layers.Dense(2), r'model is a Keras model \(Dense\): give a function without'),
    (3, r'model must be a tff_adaptive.models.Model, .* found int'),
    (lambda: 3, r'must return a tff.learning.models.VariableModel, it returned int: return'),
    (undecorated, r'a function that returns a new .*VariableModel, found Callable'),
  ):
    with pytest.raises(TypeError, match=words):
      model_adapters.wrap(model)
