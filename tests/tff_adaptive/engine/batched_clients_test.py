"""Clients do a computation together where that is declared, with the numbers of each alone."""

import collections
import functools
import gc
import itertools
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from google.protobuf import text_format

from tests.helpers import closeness, computations, small_problem
from tff_adaptive import algorithms, corrections, engine, models
from tff_adaptive.client import ClientTraining, batching, client_arrays, model_adapters
from tff_adaptive.client.local_training import can_group
from tff_adaptive.devices import placement
from tff_adaptive.engine import batched_clients
from tff_adaptive_tasks import (
  ada_best,
  catalog,
  digits,
  emnist,
  flamby,
  least_squares,
  mnist,
  pfllib,
  shakespeare,
  stackoverflow,
)
from tff_adaptive_tasks.models import layers, resnet, transformer


def scaled(factor, calls=None, is_batched=False):
  """The computation x -> factor * x, and how clients do it together; `calls` grows with each."""

  def together(clients):
    if calls is not None:
      calls.append(len(clients))
    return tf.stack([factor * x for (x,) in clients])

  group = batched_clients.Group(together, is_batched)
  return batched_clients.computation(group, np.float32)(lambda x: factor * x)


def at_clients(local):
  """The computation at each client."""
  type_spec = computations.at_clients(local.type_signature.parameter)
  return tff.federated_computation(lambda x: tff.federated_map(local, x), type_spec)


def run(computation, cohort, **options):
  with engine.graph_context(**{'clients_per_step': 2, **options}):
    return [np.asarray(value) for value in computation(cohort)]


def test_a_computation_is_done_together_where_it_is_asked_for():
  calls = [], []
  both = [scaled(2.0, mine) for mine in calls]  # Of equal graphs.
  for local, expected in zip(both, ([1, 0], [1, 1])):
    assert run(at_clients(local), [1.0, 2.0, 3.0]) == [2, 4, 6]
    for not_asked in (1, None):
      assert run(at_clients(local), [1.0, 2.0, 3.0], clients_per_step=not_asked) == [2, 4, 6]
    assert [len(mine) for mine in calls] == expected
  assert calls[0] == [2]


def play_gpus(monkeypatch, number):
  """Lets the CPU play GPUs."""
  gpus = placement.Placement(('/CPU:0',) * number, is_gpu=True)
  monkeypatch.setattr(placement, 'place', lambda device, names: gpus)


@pytest.mark.parametrize('is_batched', [True, False])
def test_on_a_gpu_what_has_batched_operations_is_done_together_unasked(is_batched, monkeypatch):
  play_gpus(monkeypatch, 1)
  calls = []
  local = scaled(2.0, calls, is_batched)
  assert run(at_clients(local), [1.0, 2.0, 3.0], clients_per_step=None) == [2, 4, 6]
  assert calls == ([3] if is_batched else [])


@pytest.mark.parametrize(
  'around, expected',
  [
    (lambda inner, x: inner(x) + 100.0, [102, 104, 106]),
    (lambda inner, x: inner(x + 1.0), [4, 6, 8]),
    (lambda inner, x: inner(inner(x)), [4, 8, 12]),
  ],
)
def test_a_computation_that_calls_it_and_does_more_is_another(around, expected):
  inner = scaled(2.0)
  outer = tff.tensorflow.computation(lambda x: around(inner, x), np.float32)
  assert run(at_clients(outer), [1.0, 2.0, 3.0]) == expected


def with_function_named(name, factor):
  """The computation x -> factor * x by a function of a name, as another process may have it."""
  scale = tf.function(lambda x: factor * x)
  comp = tff.tensorflow.computation(lambda x: scale(x), np.float32)
  proto = tff.framework.serialize_computation(comp)
  graph_def = tf.compat.v1.GraphDef()
  proto.tensorflow.graph_def.Unpack(graph_def)
  (function,) = graph_def.library.function
  text = text_format.MessageToString(graph_def).replace(function.signature.name, name)
  proto.tensorflow.graph_def.Pack(text_format.Parse(text, tf.compat.v1.GraphDef()))
  return tff.framework.deserialize_computation(proto)


def test_functions_of_one_name_from_two_processes_are_distinguished():
  for factor in (2, 3):
    scale = with_function_named('one_name', float(factor))
    assert run(at_clients(scale), [1.0, 2.0]) == [factor, 2 * factor]


@pytest.mark.sample(1)
@pytest.mark.parametrize('name, client_axis', [('fed_avg', False), ('ada_best', True)])
def test_a_group_lives_as_long_as_the_process_and_no_longer(name, client_axis, monkeypatch):
  references = []
  group = batched_clients.Group.__init__

  def remember(self, *args, **named):
    group(self, *args, **named)
    references.append(weakref.ref(self))
    assert self.is_batched == client_axis

  monkeypatch.setattr(batched_clients.Group, '__init__', remember)
  model = small_problem.linear_model(client_axis=client_axis)
  process = getattr(algorithms, f'build_{name}')(
    model, client_learning_rate=0.1, training=ClientTraining(batching=batching.Batching(2))
  )
  ended = weakref.ref(model)
  del model
  gc.collect()
  next_computation = process.next
  del process
  assert any(reference() is not None for reference in references)
  del next_computation
  gc.collect()
  assert all(reference() is None for reference in references)
  assert ended() is None


SIZES = (23, 40, 7, 9, 31)  # Unequal, and none a multiple of the batch size.


def build_model(client_axis, shapes=None):
  """A layer after dropout, which appends the shapes of its inputs to `shapes`."""
  plain = layers.perceptron(1, [20, 5])

  def forward(weights, x, training, seed):
    if shapes is not None:
      shapes.append(x.shape.as_list())
    return plain.forward(weights, models.dropout(x, 0.3, seed, 1), training, seed)

  return models.Model(
    initial_weights=plain.initial_weights[0],
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    metrics={'accuracy': models.accuracy},
    x_spec=tf.TensorSpec([None, 20]),
    y_spec=tf.TensorSpec([None], tf.int32),
    client_axis=client_axis,
  )


_rng = np.random.default_rng(2)
COHORT = [
  client_arrays(_rng.standard_normal((n, 20)).astype('f'), _rng.integers(0, 5, n).astype('i'), i)
  for i, n in enumerate(SIZES)
]


def rounds(process, clients_per_step, cohort=COHORT):
  """All values of two rounds."""
  with engine.graph_context(clients_per_step=clients_per_step):
    state = process.initialize()
    results = []
    client_states = [getattr(process, 'initial_client_state', ())] * len(cohort)
    for _ in range(2):
      if isinstance(process, algorithms.StatefulProcess):
        state, client_states, metrics = process.next(state, client_states, cohort)
      else:
        state, metrics = process.next(state, cohort)
      results.append((state, list(client_states), metrics))
  return [np.asarray(leaf) for leaf in tf.nest.flatten(results)]


def test_groups_of_a_model_without_a_client_axis_equal_single_clients():
  process = algorithms.build_fed_avg(
    build_model(client_axis=False),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8, 2)),
    more_parts=[corrections.Clip(0.5), corrections.WeightDecay(0.01)],
  )
  single = rounds(process, 1)
  together = rounds(process, 2)  # The last group is not full.
  for a, b in zip(single, together):
    closeness.assert_close(a, b)


@pytest.mark.exhaustive
def test_on_gpus_unequal_clients_train_together_unasked(monkeypatch):
  shapes = []
  process = algorithms.build_ada_best(
    build_model(client_axis=True, shapes=shapes),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8, 2)),
  )
  single = rounds(process, 1, COHORT[:3])
  del shapes[:]
  play_gpus(monkeypatch, 2)
  unasked = rounds(process, None, COHORT[:3])
  assert {shape[0] for shape in shapes if len(shape) == 3} == {2}
  for a, b in zip(single, unasked):
    closeness.assert_close(a, b)


def test_clients_whose_examples_differ_in_shape_train_alone():
  training = ClientTraining(batching=batching.Batching(2))
  widths = [tf.TensorSpec([None, width]) for width in (1, None)]
  can = [
    can_group(model_adapters.wrap(small_problem.model(x_spec=x, y_spec=y)), training)
    for x, y in itertools.product(widths, widths)
  ]
  assert can == [True, False, False, False]


MODELS = {
  'digits': digits.build_model,
  'emnist_cr': emnist.build_cnn,
  'emnist_ae': emnist.build_autoencoder,
  'shakespeare': shakespeare.build_model,
  'shakespeare_transformer': shakespeare.build_transformer,
  'stackoverflow_nwp': lambda s: stackoverflow.build_model(30, 'published', s),
  'stackoverflow_lr': lambda s: stackoverflow.build_tag_model(40, 8, s),
  'cifar100': lambda s: resnet.build(s, 100),
  'emnist_letters': lambda s: ada_best.build_model(s, 'emnist_letters'),
  'cifar10_cnn': lambda s: ada_best.build_cnn(s, 10),
  'mnist_skewed': lambda s: ada_best.build_model(s, 'mnist_skewed'),
  'mnist_2nn': mnist.build_2nn,
  'mnist_cnn': mnist.build_cnn,
  'fashion_mnist': pfllib.build_model,
  'synthetic': lambda s: layers.perceptron(s, [60, 10]),
  'fed_heart': flamby.build_heart_model,
  'fed_tcga_brca': flamby.build_cox_model,
  'least_squares': least_squares.build_model,
}
# The same networks for another number of classes.
SAME = {
  'cifar10': 'cifar100',
  'cifar100_cnn': 'cifar10_cnn',
  'digits_skewed': 'mnist_skewed',
  'cifar100_pfllib': 'fashion_mnist',
}


def batch(model):
  """Two examples of each of two clients, of the kinds that the model's input has."""
  rng = np.random.default_rng(0)
  arrays = collections.OrderedDict()
  for key, spec in model.input_spec.items():
    shape = [2, 2, *spec.shape[1:]]
    # Pixels; else tokens, counts and labels, of which there are as many as last weights.
    if len(shape) == 5:
      most = 256
    else:
      most = min([9, *model.initial_weights[0][-1].shape])
    if spec.dtype.is_floating:
      numbers = rng.random(shape)
    else:
      numbers = rng.integers(1, most, shape)
    arrays[key] = tf.constant(numbers.astype(spec.dtype.as_numpy_dtype))
  return arrays


def test_every_task_is_here():
  assert {*MODELS, *SAME} == set(catalog.names())
  assert not MODELS.keys() & SAME.keys()


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
@pytest.mark.sample(2)
def test_a_step_together_is_as_one_after_another(name, monkeypatch):
  for task in (shakespeare, stackoverflow):
    monkeypatch.setattr(task, 'STEPS', 3)  # An LSTM is traced step by step.
  # One block of each kind.
  monkeypatch.setattr(resnet, '_FILTERS', (8, 16))
  monkeypatch.setattr(resnet, '_BLOCKS', 1)
  draw = functools.partial(transformer.initial_weights, size=16)
  monkeypatch.setattr(transformer, 'initial_weights', lambda *sizes, **_: draw(*sizes, blocks=1))
  model = MODELS[name](0)
  other = MODELS[name](1)
  differs = other.initial_weights[0][0] != model.initial_weights[0][0]
  assert name == 'least_squares' or differs.any()
  single = model_adapters.wrap(model)
  together = single.for_groups()
  examples = batch(model)
  seeds = tf.constant([[1, 2], [3, 4]])
  shares = tf.constant([[0.5, 0.5], [1.0, 0.0]])  # The second client has one example and padding.
  sizes = tf.constant([2.0, 1.0])
  step = model_adapters.LocalStep
  # The clients' weights differ, as they do after a step.
  weights = [tf.constant(np.stack([w, 1.3 * w]), tf.float32) for w in model.initial_weights[0]]

  @tf.function(autograph=False)
  def one(weights, batch, weighting, seed):
    return single.gradients(weights, (), step(batch, weighting, seed), single.start())

  @tf.function(autograph=False)
  def both(weights, batch, weighting, seed):
    return together.gradients(weights, (), step(batch, weighting, seed), together.start(2))

  grads, _, metrics = both(tuple(weights), examples, (shares, sizes), seeds)
  for i in range(2):
    mine = {key: value[i] for key, value in examples.items()}
    wanted, _, sums = one(tuple(w[i] for w in weights), mine, (shares[i], sizes[i]), seeds[i])
    np.testing.assert_allclose(metrics[i], sums, rtol=1e-4)
    for a, b in zip(grads, wanted):
      a = tf.convert_to_tensor(a)[i].numpy()
      b = tf.convert_to_tensor(b).numpy()
      np.testing.assert_allclose(a, b, 1e-3, 1e-4 * np.abs(b).max())
