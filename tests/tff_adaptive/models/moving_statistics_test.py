"""Moving statistics that are weights, against Keras's own training."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, models
from tff_adaptive.client import Batching, ClientTraining, weight_kinds
from tff_adaptive.models import mixed_precision

keras = tf.keras
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RATE = 0.2
CLIENTS = small_problem.clients(num_examples=(6, 8, 9))


def dense():
  """Batch normalisation of vectors, whose variance Keras does not correct for its mean."""
  layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(momentum=0.8)]
  return keras.Sequential([keras.Input([5]), *layers, keras.layers.Dense(3)])


def convolution():
  """Batch normalisation of images, which Keras computes by another operation."""
  layers = [
    keras.layers.Reshape([5, 1, 1]),
    keras.layers.Conv2D(2, [3, 1]),
    keras.layers.BatchNormalization(momentum=0.8),
    keras.layers.Flatten(),
  ]
  return keras.Sequential([keras.Input([5]), *layers, keras.layers.Dense(3)])


def model_of(build):
  return models.from_keras(build, LOSS, metrics=['accuracy'], moving_statistics=True)


def build_process(model, part=None, **options):
  return algorithms.build_drift_corrected(
    model,
    part or corrections.FedBN(),
    client_learning_rate=RATE,
    training=ClientTraining(batching=Batching(4, epochs=2, shuffle=False)),
    client_weighting='uniform',
    **options,
  )


class InKeras:
  """FedBN by Keras's own training of a model for each client."""

  def __init__(self, model, build):
    self._build = build
    self._at_server = [np.array(w) for w in model.initial_weights[0]]
    self._stays = [
      name.split('/')[1] in ('gamma', 'beta', 'moving_mean', 'moving_variance')
      for name in model.weight_names
    ]
    self.of_clients = {}

  def round(self, cohort):
    trained = []
    for i in cohort:
      weights = [w.copy() for w in self._at_server]
      if i in self.of_clients:
        pairs = zip(self._stays, self.of_clients[i], weights)
        weights = [of_client if stays else w for stays, of_client, w in pairs]
      self.of_clients[i] = self._trained(weights, *CLIENTS[i])
      trained.append(self.of_clients[i])
    for k, stays in enumerate(self._stays):
      if not stays:
        self._at_server[k] = np.mean([weights[k] for weights in trained], axis=0)

  def model_of(self, i):
    """The server's weights, with those of the client where they stay."""
    pairs = zip(self._stays, self.of_clients[i], self._at_server)
    return [of_client if stays else w for stays, of_client, w in pairs]

  def _trained(self, weights, x, y):
    network = self._build()
    (layer,) = [m for m in network.layers if isinstance(m, keras.layers.BatchNormalization)]
    statistics = [layer.moving_mean, layer.moving_variance]
    variables = [*network.trainable_variables, *statistics]
    for variable, value in zip(variables, weights):
      variable.assign(value)
    network.compile(keras.optimizers.SGD(RATE), LOSS)
    for _ in range(2):
      for first in range(0, len(y), 4):
        network.train_on_batch(x[first : first + 4], y[first : first + 4])
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize('build', [dense, convolution])
def test_rounds_of_fed_bn_equal_keras(build):
  """Clients have 6, 8 and 9 examples, so that the last batches are smaller."""
  model = model_of(build)
  expected = InKeras(model, build)
  with engine.graph_context(clients_per_step=3):
    run = small_problem.Run(build_process(model), CLIENTS)
    for cohort in ([0, 1], [1, 2], [0, 2]):
      run.round(cohort)
      expected.round(cohort)
  for i in range(3):
    of_client = run.process.client_model(run.state, run.client_states[i])
    for actual, wanted in zip(of_client, expected.model_of(i), strict=True):
      np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    variance = of_client[model.weight_names.index('batch_normalization/moving_variance')]
    assert np.abs(variance - 1).max() > 0.1  # It has moved.


def test_a_changed_loss_moves_them_too():
  """FedLC's loss, whose calibration of 0 changes nothing where a client has all classes."""
  x, y = CLIENTS[2]
  data = [(x, np.arange(len(y), dtype=np.int32) % 3)]
  of_clients = []
  for part in (corrections.FedBN(), corrections.chain(corrections.FedLC(0.0), corrections.FedBN())):
    with engine.graph_context():
      run = small_problem.Run(build_process(model_of(dense), part), data)
      run.round([0])
    of_clients.append(run.process.client_model(run.state, run.client_states[0]))
  for one, other in zip(*of_clients):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_predictions_use_the_statistics_and_a_keras_model_has_them():
  model = model_of(dense)
  weights = [w + 0.5 for w in model.initial_weights[0]]
  x = CLIENTS[0][0]
  exported = model.to_keras(weights)
  np.testing.assert_allclose(
    model.forward(tuple(weights), x, False, None), exported(x, training=False), rtol=1e-5, atol=1e-6
  )
  of_keras, constants = model.values_of(exported)
  assert not constants
  for one, other in zip(of_keras, weights, strict=True):
    np.testing.assert_array_equal(one, other)


def test_a_stored_model_has_them(tmp_path):
  model = model_of(dense)
  weights = [w + 0.5 for w in model.initial_weights[0]]
  models.store_model(model, str(tmp_path), description={})
  stored = models.load_stored_model(str(tmp_path))
  x = CLIENTS[0][0]
  wanted = model.forward(tuple(weights), x, False, None)
  np.testing.assert_allclose(stored.forward(weights, x), wanted, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(stored.to_keras(weights)(x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  ('part', 'words'),
  [
    (corrections.chain(), 'moving statistics of the model have to stay at the clients'),
    (corrections.FedPer(), 'moving statistics of the model have to stay at the clients'),
    *(
      (corrections.chain(corrections.FedBN(), part), f'{part.name} cannot be combined with moving')
      for part in (
        corrections.APFL(),
        corrections.PFedMe(),
        corrections.PerFedAvg(),
        corrections.FedLESAM(),
        corrections.DeltaSGD(),
        corrections.Scaffold(num_clients=3),
        corrections.Mime(),
      )
    ),
    (
      corrections.chain(corrections.FedBN(), corrections.Ditto()),
      'ditto cannot be combined with moving statistics',
    ),
    (
      corrections.chain(corrections.FedBN(), corrections.FedProx(0.1), corrections.Clip(1.0)),
      'clipping cannot be combined with fed_prox before it',
    ),
  ],
)
def test_statistics_that_would_be_wrong_are_refused(part, words):
  with pytest.raises(ValueError, match=words):
    build_process(model_of(dense), part)


def test_mixed_precision_is_refused():
  with pytest.raises(ValueError, match='moving statistics computes in 32 bits'):
    mixed_precision.convert(model_of(dense), 'bfloat16')


def renormed():
  layers = [keras.layers.BatchNormalization(renorm=True), keras.layers.Dense(3)]
  return keras.Sequential([keras.Input([5]), *layers])


def called_twice():
  inputs = keras.Input([4])
  layer = keras.layers.BatchNormalization()
  return keras.Model(inputs, keras.layers.Dense(3)(layer(layer(inputs))))


class InAFunction(keras.layers.Layer):
  """Normalises in a function of its own, which keeps its tensors."""

  def __init__(self):
    super().__init__()
    self.normalize = keras.layers.BatchNormalization()

  @tf.function
  def call(self, x, training=None):
    return self.normalize(x, training=training)


def in_a_function():
  return keras.Sequential([keras.Input([5]), InAFunction(), keras.layers.Dense(3)])


@pytest.mark.parametrize(
  ('build', 'words'),
  [
    (called_twice, 'calls a BatchNormalization layer twice'),
    (in_a_function, 'BatchNormalization runs in a function of its own'),
    (renormed, 'has renorm, synchronized or virtual_batch_size'),
    (
      lambda: keras.Sequential([keras.Input([5]), keras.layers.Dense(3)]),
      'no BatchNormalization that trains',
    ),
  ],
)
def test_a_model_without_such_statistics_is_refused(build, words):
  with pytest.raises(ValueError, match=words):
    model_of(build)


def test_weights_of_the_same_name_are_of_the_same_kind():
  """Of two layers that a user gave one name, the second one's weights have a number behind them."""

  def block():
    layers = [keras.layers.BatchNormalization(name='bn'), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input([4]), *layers])

  def build():
    return keras.Sequential([keras.Input([4]), block(), block(), keras.layers.Dense(3)])

  named = weight_kinds.of_model(model_of(build))
  norms = [weight for weight in named if 'norm' in weight.kinds]
  assert len(norms) == 8
  assert all(weight.shape == (4,) for weight in norms)


def test_a_layer_in_inference_mode_has_no_gradient_by_its_statistics():
  def build():
    inputs = keras.Input([5])
    normalized = keras.layers.BatchNormalization()(inputs, training=False)
    return keras.Model(inputs, keras.layers.Dense(3)(normalized))

  model = model_of(build)
  part = corrections.chain(corrections.FedBN(), corrections.Clip(0.1))
  with engine.graph_context():
    run = small_problem.Run(build_process(model, part), CLIENTS)
    run.round([0, 1])
  with pytest.warns(UserWarning, match='BatchNormalization'):
    frozen = models.from_keras(build, LOSS)
  with engine.graph_context():
    other = small_problem.Run(build_process(frozen, part), CLIENTS)
    other.round([0, 1])
  count = sum(np.size(w) for w in frozen.initial_weights[0])
  np.testing.assert_allclose(run.theta[:count], other.theta, rtol=1e-6, atol=1e-7)
