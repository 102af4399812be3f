"""Mixed precision and XLA change a round by no more than their rounding."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import processes, small_problem
from tests.integration import batched_clients_test, batched_tasks_test
from tff_adaptive import algorithms, models
from tff_adaptive.client import ClientTraining, batching, xla
from tff_adaptive.engine.graph import round_function
from tff_adaptive.models import mixed_precision
from tff_adaptive_tasks import cifar, emnist, tags
from tff_adaptive_tasks.models import layers, resnet


def gradients(model, weights, examples):
  """Gradients of two examples, as one float64 vector, and the means of the metrics."""

  @tf.function(autograph=False)
  def run(weights, x, y):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss, means = model.loss_and_metrics(weights, x, y, seed=tf.constant([1, 2]))
    return tape.gradient(loss, weights), means

  found, means = run(weights, examples['x'][0], examples['y'][0])
  for gradient, weight in zip(found, weights):
    assert gradient.dtype == weight.dtype
  leaves = [np.ravel(tf.convert_to_tensor(g)).astype(np.float64) for g in found]
  return np.concatenate(leaves), means.numpy()


@pytest.mark.parametrize('dtype, unit', [('bfloat16', 2**-8), ('float16', 2**-11)])
@pytest.mark.parametrize(
  'build, has_pools',
  [
    (lambda: emnist.build_cnn(0, 10), True),
    (lambda: cifar.build_cnn(0, 10, augment=False), True),
    (lambda: tags.build_model(40, 8, 0), False),
    (lambda: layers.perceptron(0, [12, 8, 5]), False),
  ],
)
def test_gradients_in_16_bits_are_those_of_32_up_to_rounding(build, has_pools, dtype, unit):
  model = build()
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  examples = batched_tasks_test.batch(model)
  wanted, metrics = gradients(model, weights, examples)
  found, metrics_found = gradients(mixed_precision.convert(model, dtype), weights, examples)
  assert np.any(found != wanted)
  # Where a pool's two largest are nearly equal, rounding, which is each processor's own, decides
  # where the gradient goes: 17 % were seen. One that is not scaled back is off by 100 % or more.
  tolerance = 0.5 if has_pools else 16 * unit
  ends = np.cumsum([tf.size(w) for w in weights])[:-1]
  for a, b in zip(np.split(found, ends), np.split(wanted, ends)):
    assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)
  assert metrics_found[0] == pytest.approx(metrics[0], rel=8 * unit)  # The loss.


def test_small_gradients_survive_float16():
  """1e-8 is below what float16 holds; computed 1024 times as large it is not."""
  model = models.Model(
    initial_weights=[np.ones([3, 1], np.float32)],
    forward=lambda w, x, training, seed: tf.matmul(x, w[0]),
    example_loss=lambda p, y: 1e-8 * p[:, 0],
    x_spec=tf.TensorSpec([None, 3]),
    y_spec=tf.TensorSpec([None]),
  )
  examples = {'x': tf.ones([1, 2, 3]), 'y': tf.zeros([1, 2])}
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  found, _ = gradients(mixed_precision.convert(model, 'float16'), weights, examples)
  np.testing.assert_allclose(found, [1e-8] * 3, rtol=0.01)


def test_the_resnet_takes_weights_of_16_bits():
  weights = [tf.cast(w, tf.bfloat16) for w in resnet.build(0, 10).initial_weights[0]]
  assert resnet.apply(weights, tf.ones([1, 8, 8, 3], tf.bfloat16), 2).dtype == tf.bfloat16


def test_what_cannot_be_converted_is_refused():
  with pytest.raises(ValueError, match=r"'float8'.*bfloat16, float16"):
    mixed_precision.convert(small_problem.model(), 'float8')
  with pytest.raises(TypeError, match='found function'):
    mixed_precision.convert(processes.keras_model, 'float16')


def _rounds(model, name='ada_best', clients_per_step=1, own=None, **options):
  process = algorithms.build(
    name,
    model,
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8, 2), **(own or {})),
    **options,
  )
  return batched_clients_test.run(process, batched_clients_test.cohort_of(), clients_per_step)


@pytest.mark.parametrize('clients_per_step', [1, 2])
def test_rounds_in_16_bits(clients_per_step):
  model = batched_clients_test.build_model(True)
  wanted = _rounds(model)
  found = _rounds(mixed_precision.convert(model, 'bfloat16'), clients_per_step=clients_per_step)
  for a, b in zip(found, wanted):
    assert a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=0.1, atol=0.03)


@pytest.fixture
def traced(monkeypatch):
  """The graphs that the engine has traced, a list that grows."""
  graphs = []
  trace = round_function.RoundFunction.__call__

  def remember(self, *flat):
    graphs.append(tf.compat.v1.get_default_graph())
    return trace(self, *flat)

  monkeypatch.setattr(round_function.RoundFunction, '__call__', remember)
  return graphs


def _are_compiled(graphs):
  """Whether a function of the graphs is one for XLA."""
  return any(
    function.attr['_XlaMustCompile'].b
    for graph in graphs
    for function in graph.as_graph_def().library.function
  )


@pytest.mark.parametrize(
  'name, clients_per_step, own, options',
  [
    ('fed_prox', 1, {'weight_decay': 0.01, 'clip_norm': 0.5}, {'mu': 0.1}),
    ('scaffold', 1, {}, {'num_clients': 6, 'scaffold_option': 1}),
    ('ada_best', 2, {}, {}),
  ],
)
def test_compiled_rounds_are_equal(name, clients_per_step, own, options, traced):
  model = batched_clients_test.build_model(
    True, dropout=0.0
  )  # XLA draws other numbers for dropout.
  wanted = _rounds(model, name, clients_per_step, own, **options)
  assert not _are_compiled(traced)
  found = _rounds(model, name, clients_per_step, {**own, 'xla': True}, **options)
  assert _are_compiled(traced)
  for a, b in zip(found, wanted):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_xla_cannot_compile_is_reported_when_the_process_is_built():
  def forward(weights, x, training, seed):
    return tf.matmul(tf.strings.to_number(tf.strings.as_string(x)), weights[0])

  model = models.Model(
    initial_weights=[np.ones([20, 5], np.float32)],
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, 20]),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  with pytest.raises(ValueError, match=r'XLA cannot compile this model.*AsString.*leave xla out'):
    algorithms.build_fed_avg(model, client_learning_rate=0.1, training=ClientTraining(xla=True))
  with pytest.raises(TypeError, match='found function'):
    algorithms.build_fed_avg(
      processes.keras_model, client_learning_rate=0.1, training=ClientTraining(xla=True)
    )
  xla.check(small_problem.model())
