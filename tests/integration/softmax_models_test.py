"""Algorithms that change the loss of a classifier, with models that end in a softmax."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, models
from tff_adaptive.client import Batching, ClientTraining

CLASS_WEIGHTS = (10.0, 1.0, 0.5)
RATE = 0.2
_LAYERS = tf.keras.layers


@pytest.fixture(scope='module', autouse=True)
def _graph_context(graph):
  with tff.framework.get_context_stack().install(graph):
    yield


def _dense(size, activation, weights, bias):
  constant = tf.keras.initializers.Constant
  return _LAYERS.Dense(size, activation, True, constant(weights), constant(bias))


def _softmax_model(ending):
  """The perceptron in Keras, which gives probabilities."""
  w, a, v, c = oracle.unpack(small_problem.theta_0())

  def build():
    layers = [_LAYERS.Input([5]), _dense(4, 'tanh', w, a)]
    if ending == 'activation':
      layers.append(_dense(3, 'softmax', v, c))
    elif ending == 'layer':
      layers += [_dense(3, None, v, c), _LAYERS.Softmax()]
    else:  # Keras cannot see the softmax through this layer, and takes logarithms.
      layers += [_dense(3, 'softmax', v, c), _LAYERS.Reshape([3])]
    return tf.keras.Sequential(layers)

  return models.from_keras(build, 'sparse_categorical_crossentropy', metrics=[])


def _after_a_round(model, part, batch_size=4, cohort=(1, 3, 6)):
  process = algorithms.build_drift_corrected(
    model,
    part,
    client_learning_rate=RATE,
    training=ClientTraining(batching=Batching(batch_size, shuffle=False)),
  )
  run = small_problem.Run(process, small_problem.clients())
  run.round(list(cohort))
  return run


@pytest.mark.parametrize('ending', ['activation', 'layer', 'reshaped'])
@pytest.mark.parametrize(
  'part',
  [corrections.FedLC(), corrections.FedNTD(), corrections.Moon(1.0), corrections.FedProto('none')],
  ids=lambda part: part.name,
)
@pytest.mark.sample(4)
def test_a_model_with_a_softmax_trains_as_one_with_logits(part, ending):
  of_logits = _after_a_round(small_problem.model_with_features(), part)
  of_softmax = _after_a_round(_softmax_model(ending), part)
  np.testing.assert_allclose(of_softmax.theta, of_logits.theta, rtol=1e-4, atol=2e-6)


def test_class_weights_multiply_the_calibrated_loss():
  """One full-batch step of one client: theta falls by the rate times w_y (softmax - one-hot)."""
  model = models.with_class_weight(small_problem.linear_model(), CLASS_WEIGHTS)
  run = _after_a_round(model, corrections.FedLC(), batch_size=16, cohort=[3])
  x, y = small_problem.clients()[3]
  w, bias = (np.asarray(value, np.float64) for value in model.initial_weights[0])
  counts = np.bincount(y, minlength=3)
  with np.errstate(divide='ignore'):
    shifted = x @ w + bias - np.where(counts > 0, counts**-0.25, np.inf)
  slopes = np.exp(shifted - shifted.max(-1, keepdims=True))
  slopes /= slopes.sum(-1, keepdims=True)
  slopes[np.arange(len(y)), y] -= 1
  slopes *= np.array(CLASS_WEIGHTS)[y][:, np.newaxis] / len(y)
  expected = [w - RATE * x.T @ slopes, bias - RATE * slopes.sum(0)]
  for actual, wanted in zip(run.state.global_model_weights.trainable, expected):
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  'part', [corrections.FedLC(), corrections.FedNTD(), corrections.FedProto()], ids=lambda p: p.name
)
def test_a_model_with_one_output_is_refused(part):
  def build():
    return tf.keras.Sequential([_LAYERS.Input([5]), _LAYERS.Dense(4), _LAYERS.Dense(1, 'sigmoid')])

  for dtype in (tf.int32, tf.float32):
    spec = tf.TensorSpec([None, 1], dtype)
    model = models.from_keras(build, 'binary_crossentropy', metrics=[], y_spec=spec)
    with pytest.raises(ValueError, match='needs a classifier, whose labels are integers'):
      algorithms.build_drift_corrected(
        model,
        part,
        client_learning_rate=RATE,
        training=ClientTraining(batching=Batching(4)),
      )
