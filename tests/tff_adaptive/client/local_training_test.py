"""The local training loop: equal to TFF's, blind to padding, safe from clients that diverge."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import oracle, small_problem
from tff_adaptive import algorithms, corrections, engine, models
from tff_adaptive.client import Batching, ClientTraining, local_training, model_adapters

N = small_problem.NUM_CLIENTS
BATCH_TYPE = collections.OrderedDict(
  x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
)


@pytest.fixture(autouse=True)
def _graph_context():
  with engine.graph_context():
    yield


def _datasets():
  """Each client's examples in batches of 4, TFF's convention."""
  return [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)
    for x, y in small_problem.clients()
  ]


def _keras_model():
  """The small problem's perceptron, as Keras says it."""
  w, a, v, c = oracle.unpack(small_problem.theta_0())
  constant = tf.keras.initializers.Constant
  keras = tf.keras.Sequential(
    [
      tf.keras.layers.Input([5]),
      tf.keras.layers.Dense(4, 'tanh', True, constant(w), constant(a)),
      tf.keras.layers.Dense(3, None, True, constant(v), constant(c)),
    ]
  )
  return tff.learning.models.from_keras_model(
    keras,
    input_spec=BATCH_TYPE,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _functional_model():
  """The small problem's perceptron as a plain functional model of TFF, without masks."""
  ours = small_problem.model()

  def predict(weights, x, training):
    return ours.forward(tuple(weights[0]), x, training, None)

  def loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(ours.example_loss(output, label))

  return tff.learning.models.FunctionalModel(
    initial_weights=ours.initial_weights,
    predict_on_batch_fn=tf.function(predict),
    loss_fn=loss,
    metrics_fns=(collections.OrderedDict, lambda state, *_, **__: state, lambda state: state),
    input_spec=BATCH_TYPE,
  )


@pytest.mark.parametrize(
  'model', [_keras_model, _functional_model(), small_problem.model()], ids=['keras', 'tff', 'ours']
)
def test_fed_avg_is_that_of_tff_weight_for_weight(model):
  """Batched datasets, unequal n_i and K_i, other clients every round; to the last bits."""
  ours = algorithms.build_fed_avg(model, client_learning_rate=0.2)
  tffs = tff.learning.algorithms.build_weighted_fed_avg(
    model, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.2)
  )
  datasets = _datasets()
  states = ours.initialize(), tffs.initialize()
  for cohort in small_problem.cohorts(4):
    data = [datasets[i] for i in cohort]
    outputs = ours.next(states[0], data), tffs.next(states[1], data)
    states = outputs[0].state, outputs[1].state
    found, wanted = (
      oracle.pack(p.get_model_weights(s).trainable) for p, s in zip((ours, tffs), states)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
    trained, tff_trained = (o.metrics['client_work']['train'] for o in outputs)
    for name in tff_trained or ():
      np.testing.assert_allclose(trained[name], tff_trained[name], rtol=1e-6)
  assert np.abs(found - small_problem.theta_0()).max() > 0.1


def test_the_gradient_of_scaffold_option_1_is_the_same_for_keras():
  """Its pass over the data at theta^{t-1} is not counted in the metrics."""
  datasets = _datasets()
  thetas, metrics = [], []
  for model in (small_problem.model(), _keras_model):
    process = algorithms.build_scaffold(
      model, num_clients=N, scaffold_option=1, client_learning_rate=0.2
    )
    state, kept = process.initialize(), [process.initial_client_state] * 3
    for _ in range(3):
      state, kept, measured = process.next(state, kept, datasets[1:4])
    thetas.append(oracle.pack(state.global_model_weights.trainable))
    metrics.append(measured['client_work']['train'])
  np.testing.assert_allclose(*thetas, atol=1e-6)
  np.testing.assert_allclose(metrics[0]['loss'], metrics[1]['loss'], rtol=1e-5)
  assert metrics[1]['num_examples'] == sum(small_problem.NUM_EXAMPLES[1:4])


@pytest.mark.parametrize(
  'name, options',
  [('fed_avg', {}), ('scaffold', {'scaffold_option': 1}), ('scaffold', {'scaffold_option': 2})],
)
def test_whole_arrays_train_a_keras_model_as_they_train_ours(name, options):
  """Its variables are assigned before they are read, in each step."""
  if name == 'scaffold':
    options = {'num_clients': N, **options}
  runs = []
  for model in (small_problem.model(), _keras_model):
    process = algorithms.build(
      name,
      model,
      client_learning_rate=0.2,
      training=ClientTraining(batching=Batching(4, epochs=2)),
      **options,
    )
    runs.append(small_problem.Run(process, small_problem.clients()))
  for cohort in small_problem.cohorts(3):
    ours, keras = (run.round(cohort) for run in runs)
    np.testing.assert_allclose(keras.theta, ours.theta, atol=1e-6)
    trained, keras_trained = (r.metrics['client_work']['train'] for r in runs)
    np.testing.assert_allclose(keras_trained['loss'], trained['loss'], rtol=1e-5)
    accuracy = keras_trained['sparse_categorical_accuracy']
    np.testing.assert_allclose(accuracy, trained['accuracy'], rtol=1e-6)
  assert np.abs(keras.theta - small_problem.theta_0()).max() > 0.1


@pytest.mark.parametrize('name', ['fed_avg', 'scaffold_m'])
@pytest.mark.parametrize('clients_per_step', [1, 3])
def test_a_weight_may_be_a_function_of_a_clients_metrics(name, clients_per_step):
  options = {'num_clients': N} if name == 'scaffold_m' else {}
  functions = {
    'examples': lambda metrics: metrics['accuracy'][..., 1],
    'uniform': lambda metrics: 3 * tf.ones_like(metrics['accuracy'][..., 1]),
  }
  thetas = {}
  with engine.graph_context(clients_per_step=clients_per_step):
    for key, weighting in [*functions.items(), *zip(functions, functions)]:
      process = algorithms.build(
        name,
        small_problem.model(),
        client_learning_rate=0.2,
        training=ClientTraining(batching=Batching(4)),
        client_weighting=weighting,
        **options,
      )
      run = small_problem.Run(process, small_problem.clients())
      thetas.setdefault(key, []).append(run.rounds(small_problem.cohorts(2)).theta)
  for key in functions:
    np.testing.assert_allclose(*thetas[key], atol=1e-6)
  assert np.abs(thetas['examples'][0] - thetas['uniform'][0]).max() > 1e-3


def test_a_weighting_that_an_aggregator_would_leave_out_is_refused():
  options = dict(client_learning_rate=0.2, aggregator=tff.aggregators.UnweightedMeanFactory())
  with pytest.raises(ValueError, match=r"UnweightedMeanFactory.*client_weighting='uniform'"):
    algorithms.build_fed_avg(small_problem.model(), **options)
  algorithms.build_fed_avg(small_problem.model(), client_weighting='uniform', **options)


def test_seeds_have_62_bits_and_a_clip_norm_may_be_given():
  training = ClientTraining(seed=2**62 - 1, clip_norm=0.5)
  assert (training.seed, training.clip_norm, training.xla) == (2**62 - 1, 0.5, False)
  with pytest.raises(ValueError, match='seed must be at most'):
    ClientTraining(seed=2**62)


def test_clients_train_together_by_batches_of_arrays_and_optimizers_without_slots():
  ours = small_problem.model()
  for can, model, momentum, batching in (
    *((True, ours, 0.0, Batching(4)), (False, ours, 0.9, Batching(4))),
    *((False, ours, 0.0, None), (False, ours, 0.0, Batching(None))),
    (False, _functional_model(), 0.0, Batching(4)),
  ):
    sgd = tff.learning.optimizers.build_sgdm(0.1, momentum)
    training = ClientTraining(sgd, batching)
    assert local_training.can_group(model_adapters.wrap(model), training) == can


@pytest.mark.parametrize('name', ['fed_avg', 'scaffold_m'])
def test_a_client_without_examples_counts_for_nothing_and_has_not_diverged(name):
  options = {'num_clients': N} if name == 'scaffold_m' else {}
  data = small_problem.clients()
  data[1] = tuple(array[:0] for array in data[1])
  thetas = []
  for cohort in ([0, 1, 2], [0, 2]):
    process = algorithms.build(
      name,
      small_problem.model(),
      client_learning_rate=0.2,
      training=ClientTraining(batching=Batching(4)),
      client_weighting='uniform',
      **options,
    )
    run = small_problem.Run(process, data).round(cohort)
    assert run.metrics['client_work']['updates']['non_finite_clients'] == 0
    thetas.append(run.theta)
  np.testing.assert_allclose(*thetas, atol=1e-7)


def test_the_spread_is_that_of_the_weighted_mean():
  data = small_problem.clients()
  process = algorithms.build_scaffold_m(
    small_problem.model(),
    num_clients=N,
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4)),
    client_weighting='examples',
  )
  updates, weights = [], []
  for i in range(3):
    run = small_problem.Run(process, data).round([i])
    updates.append(small_problem.theta_0() - run.theta_bar)
    weights.append(len(data[i][1]))
  mean = np.average(updates, axis=0, weights=weights)
  spread = np.sqrt(np.average(np.sum((updates - mean) ** 2, 1), weights=weights))
  run = small_problem.Run(process, data).round([0, 1, 2])
  measured = run.metrics['client_work']['updates']['update_spread']
  np.testing.assert_allclose(measured, spread, rtol=1e-4)


def test_updates_of_16_bits_do_not_overflow_their_norm():
  rng = np.random.default_rng(0)
  weights = tuple(rng.normal(0, 30, [40, 40]).astype(np.float16) for _ in range(2))
  wanted = sum(np.sum(w.astype(np.float64) ** 2) for w in weights)
  for size in (None, 1):
    found = corrections.base.squared_norm(tuple(map(tf.constant, weights)), size)
    np.testing.assert_allclose(np.squeeze(found), wanted, rtol=1e-5)
  assert wanted > np.finfo(np.float16).max


def test_dropout_differs_between_clients_given_as_batches():
  def forward(weights, x, training, seed):
    del x, training
    return models.dropout(weights[0] * tf.ones([4, 1]), 0.5, seed, 1)

  model = models.Model(
    initial_weights=(np.ones((1, 200), np.float32),),
    forward=forward,
    example_loss=lambda y_hat, y: tf.reduce_sum(y_hat, -1),
    x_spec=tf.TensorSpec([None, 2], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  process = algorithms.build_scaffold_m(model, num_clients=2, client_learning_rate=0.1)
  xs = np.random.default_rng(3).normal(size=(2, 4, 2)).astype(np.float32)
  for second, alike in ((xs[1], False), (xs[0], True)):
    data = [
      tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=np.zeros(4, np.int32)))
      for x in (xs[0], second)
    ]
    kept = process.next(process.initialize(), [process.initial_client_state] * 2, data)[1]
    h = [np.asarray(state['h'][0]) for state in kept]
    assert np.array_equal(*h) == alike


@pytest.mark.parametrize('given_as', ['whole arrays', 'groups', 'batches'])
def test_no_two_local_steps_draw_the_same(given_as):
  cells = 10**6

  def forward(weights, x, training, seed):
    del training
    drawn = tf.random.stateless_uniform([], seed, maxval=cells, dtype=tf.int32)
    return weights[0][drawn] * tf.ones_like(x[:, 0])  # Its gradient shows what was drawn.

  model = models.Model(
    initial_weights=(np.zeros(cells, np.float32),),
    forward=forward,
    example_loss=lambda y_hat, y: y_hat,
    x_spec=tf.TensorSpec([None, 5], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  cohort, rounds, epochs = [1, 2, 3, 4], 3, 2  # Neighbours, as rounds and steps are.
  batching = None if given_as == 'batches' else Batching(4, epochs)
  process = algorithms.build_fed_avg(
    model,
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching),
    client_weighting='uniform',
  )
  if given_as == 'batches':
    data = [_datasets()[i].repeat(epochs) for i in cohort]
  else:
    data = [small_problem.element(small_problem.clients()[i], i) for i in cohort]
  steps = sum(epochs * -(-small_problem.NUM_EXAMPLES[i] // 4) for i in cohort)
  state = process.initialize()
  with engine.graph_context(clients_per_step=4 if given_as == 'groups' else 1):
    for _ in range(rounds):
      state = process.next(state, data).state
  assert np.count_nonzero(state.global_model_weights.trainable[0]) == rounds * steps


class _PullBack(corrections.Correction):
  """Keeps where it ended, under another name than h, and begins at the initial weights."""

  name, is_stateful = 'pull_back', True

  def client_state(self, weights):
    return collections.OrderedDict(ended=weights)

  def gradient(self, client, theta, g):
    return tuple(g + w - e for g, w, e in zip(g, theta, client.client_state['ended']))

  def client_update(self, client, g_i, steps):
    ended = tuple(w - g for w, g in zip(client.theta_0, g_i))
    return collections.OrderedDict(ended=ended), ()


def test_a_correction_may_keep_anything_and_begin_anywhere():
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    _PullBack(),
    tff.learning.optimizers.build_sgdm(1.0),
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4)),
  )
  first = oracle.pack(process.initial_client_state['ended'])
  np.testing.assert_array_equal(first, small_problem.theta_0())
  data = small_problem.clients()
  _, (kept,), metrics = process.next(
    process.initialize(), [process.initial_client_state], [small_problem.element(data[3], 3)]
  )
  assert np.abs(oracle.pack(kept['ended']) - first).max() > 0.01
  assert metrics['client_work']['updates']['h_i_norm_mean'] == 0
  assert metrics['client_work']['updates']['first_time_clients'] == 0


def test_padding_changes_nothing():
  """The last batch of an epoch is padded for this project's models and short for TFF's."""
  runs = [
    small_problem.Run(
      algorithms.build_fed_avg(
        model, client_learning_rate=0.2, training=ClientTraining(batching=Batching(4, epochs=2))
      ),
      small_problem.clients(),
    )
    for model in (small_problem.model(), _functional_model())
  ]
  assert any(n % 4 for n in small_problem.NUM_EXAMPLES)
  for cohort in small_problem.cohorts(3):
    padded, short = (run.round(cohort).theta for run in runs)
    np.testing.assert_allclose(padded, short, atol=1e-6)


def _stateful(name, **options):
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = N
  if name in ('ada_best', 'fed_dyn'):
    options['mu'] = 0.3
  process = algorithms.build(
    name,
    small_problem.model(),
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4)),
    **options,
  )
  return small_problem.Run(process, small_problem.clients())


def _poisoned(data, client):
  """The data with one infinite number among a client's inputs."""
  x, y = data[client]
  x = x.copy()
  x[1, 2] = np.inf
  return [*data[:client], (x, y), *data[client + 1 :]]


def _bits(tree):
  return [np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(tree)]


@pytest.mark.parametrize('name', ['fed_avg', 'scaffold', 'scaffold_m', 'fed_dyn', 'ada_best'])
def test_a_client_that_diverges_counts_for_nothing_but_is_counted(name):
  """The round is the one without it, its state stays to the bit, and a metric reports it."""
  run, without = _stateful(name), _stateful(name)
  for each in (run, without):
    each.round([0, 4, 6])
  kept = dict(run.client_states)
  run.data = _poisoned(run.data, 4)
  run.round([1, 4, 2])
  without.round([1, 2])
  np.testing.assert_allclose(run.theta, without.theta, atol=1e-7)
  updates, wanted = (r.metrics['client_work']['updates'] for r in (run, without))
  assert float(updates['non_finite_clients']) == 1
  assert float(wanted['non_finite_clients']) == 0
  for key in set(updates) - {'non_finite_clients'}:
    np.testing.assert_allclose(updates[key], wanted[key], rtol=1e-5, err_msg=key)
  np.testing.assert_allclose(
    run.metrics['client_work']['train']['loss'], without.metrics['client_work']['train']['loss']
  )
  if run.is_stateful:
    assert _bits(run.client_states[4]) == _bits(kept[4])
    assert _bits(run.client_states[1]) != _bits(run.process.initial_client_state)
    np.testing.assert_allclose(run.h, without.h, atol=1e-6)
    np.testing.assert_allclose(run.theta_bar, without.theta_bar, atol=1e-7)


@pytest.mark.parametrize('name', ['fed_avg', 'scaffold_m', 'ada_best'])
def test_a_round_in_which_all_diverge_changes_nothing(name):
  run = _stateful(name)
  run.round([0, 4])
  before, kept = run.state, dict(run.client_states)
  good, run.data = run.data, _poisoned(run.data, 4)
  run.round([4])
  assert float(run.metrics['client_work']['updates']['non_finite_clients']) == 1
  assert _bits(run.state.global_model_weights) == _bits(before.global_model_weights)
  if run.is_stateful:
    assert _bits(run.state.inference_weights) == _bits(before.inference_weights)
    assert _bits(run.state.correction) == _bits(before.correction)
    assert int(run.state.round_number) == int(before.round_number) + 1
    assert _bits(run.client_states[4]) == _bits(kept[4])
  run.data = good
  run.round([0, 4])
  assert np.isfinite(run.theta).all()


def test_an_aggregator_of_tff_composes_with_clients_that_remember():
  """AdaBest with each g_i clipped to norm 0.1 at the aggregation, against the oracle's formulas."""
  clip = tff.aggregators.clipping_factory(0.1, tff.aggregators.MeanFactory())
  run = _stateful('ada_best', beta=0.5, aggregator=clip)
  cohorts = [[0, 1, 2], [3, 1]]
  h = np.zeros_like(run.h)
  for cohort in cohorts:
    before, theta = {i: run.h_i(i) for i in cohort}, run.theta
    run.round(cohort)
    # One round apart, h_i <- h_i / 1 + g_i reveals g_i.
    g = [run.h_i(i) - before[i] for i in cohort]
    norms = [np.linalg.norm(g_i) for g_i in g]
    assert min(norms) > 0.1
    g_bar = np.mean([g_i * 0.1 / norm for g_i, norm in zip(g, norms)], 0)
    h = 0.5 * (h + g_bar)
    np.testing.assert_allclose(run.theta_bar, theta - g_bar, atol=1e-6)
    np.testing.assert_allclose(run.h, h, atol=1e-6)
    np.testing.assert_allclose(run.theta, theta - g_bar - h, atol=1e-6)
  assert run.metrics['aggregator']['clipped_count'] == 2
