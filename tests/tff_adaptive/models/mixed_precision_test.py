"""Mixed precision and XLA change a round by no more than their rounding."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import closeness, processes, small_problem
from tff_adaptive import algorithms, corrections, models
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.models import mixed_precision
from tff_adaptive_tasks.models import resnet


def gradients(model, weights, examples):
  """Gradients of some examples, x and y, as one float64 vector, and the means of the metrics."""

  @tf.function(autograph=False)
  def run(weights, x, y):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss, means = model.loss_and_metrics(weights, x, y, seed=tf.constant([1, 2]))
    return tape.gradient(loss, weights), means

  by_weight, means = run(weights, *map(tf.constant, examples))
  for gradient, weight in zip(by_weight, weights):
    assert gradient.dtype == weight.dtype
  leaves = [np.ravel(tf.convert_to_tensor(g)).astype(np.float64) for g in by_weight]
  return np.concatenate(leaves), means.numpy()


@pytest.mark.parametrize('dtype, unit', [('bfloat16', 2**-8), ('float16', 2**-11)])
def test_gradients_in_16_bits_are_those_of_32_up_to_rounding(dtype, unit):
  model = small_problem.model()
  examples = small_problem.clients()[1]
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  wanted, metrics = gradients(model, weights, examples)
  rounded, rounded_metrics = gradients(mixed_precision.convert(model, dtype), weights, examples)
  assert np.any(rounded != wanted)
  ends = np.cumsum([tf.size(w) for w in weights])[:-1]
  for a, b in zip(np.split(rounded, ends), np.split(wanted, ends)):
    assert np.linalg.norm(a - b) <= 16 * unit * np.linalg.norm(b)
  assert rounded_metrics[0] == pytest.approx(metrics[0], rel=8 * unit)  # The loss.


def test_small_gradients_survive_float16():
  """1e-8 is below what float16 holds; computed 1024 times as large it is not."""
  model = models.Model(
    initial_weights=[np.ones([3, 1], np.float32)],
    forward=lambda w, x, training, seed: tf.matmul(x, w[0]),
    example_loss=lambda p, y: 1e-8 * p[:, 0],
    x_spec=tf.TensorSpec([None, 3]),
    y_spec=tf.TensorSpec([None]),
  )
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  gradient, _ = gradients(
    mixed_precision.convert(model, 'float16'), weights, (tf.ones([2, 3]), tf.zeros([2]))
  )
  np.testing.assert_allclose(gradient, [1e-8] * 3, rtol=0.01)


def test_the_resnet_takes_weights_of_16_bits():
  weights = [tf.cast(w, tf.bfloat16) for w in resnet.build(0, 10).initial_weights[0]]
  assert resnet.apply(weights, tf.ones([1, 8, 8, 3], tf.bfloat16), 2).dtype == tf.bfloat16


@pytest.mark.parametrize('in_group', [False, True])
@pytest.mark.sample(1)
def test_compiled_steps_are_equal(in_group, monkeypatch):
  options_of_functions = []
  function = tf.function

  def noted(*arguments, **options):
    options_of_functions.append(options)
    return function(*arguments, **options)

  monkeypatch.setattr(tf, 'function', noted)
  model = small_problem.linear_model()
  elements = []
  for i, client in enumerate(small_problem.clients()[:2]):
    arrays = small_problem.element(client, i)[0]
    elements.append({name: tf.constant(value) for name, value in arrays.items()})
  h = tuple(0.1 + tf.zeros_like(w) for w in model.initial_weights[0])
  data = elements[1]
  client_state = {'h': h}
  if in_group:
    data = elements
    client_state = {'h': tuple(tf.stack([w, w]) for w in h)}
  train = functools.partial(
    small_problem.train_locally,
    data,
    model,
    corrections.ScaffoldM(6),
    client_state,
    tuple(map(tf.zeros_like, h)),
    rate=0.1,
    batching=Batching(4, 2),
    weight_decay=0.01,
    clip_norm=0.5,
  )
  wanted = train()
  assert not any(options.get('jit_compile') for options in options_of_functions)
  compiled = train(xla=True)
  assert any(options.get('jit_compile') for options in options_of_functions)
  for a, b in zip(tf.nest.flatten(compiled), tf.nest.flatten(wanted)):
    closeness.assert_close(a, b)


def test_xla_is_for_models_of_this_project_and_precision_for_two_dtypes():
  with pytest.raises(ValueError, match=r"'float8'.*bfloat16, float16"):
    mixed_precision.convert(small_problem.model(), 'float8')
  options = dict(client_learning_rate=0.1, training=ClientTraining(xla=True))
  words = '^model must be of the class Model, found .*: leave xla out'
  with pytest.raises(TypeError, match=words):
    algorithms.build_fed_avg(processes.keras_model, **options)
