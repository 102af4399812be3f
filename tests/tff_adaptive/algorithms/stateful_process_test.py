"""Processes whose clients keep a state: what they keep, what the server keeps, and who counts."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tests.helpers import closeness, engines, small_problem
from tff_adaptive import algorithms, corrections, optimizers
from tff_adaptive.client import Batching, ClientTraining

TRAINING = ClientTraining(batching=Batching(4))
DATA = small_problem.clients()
SERVER = optimizers.build_yogi(0.25)


def build(correction, model=None, **options):
  model = model or small_problem.linear_model()
  return algorithms.build_drift_corrected(model, correction, client_learning_rate=0.2, **options)


def run(graph, process, *cohorts, data=DATA):
  """The run after rounds of these cohorts."""
  return engines.run(graph, lambda: small_problem.Run(process, data).rounds(cohorts))


class PullBack(corrections.Correction):
  """Keeps where it ended, under another name than h, begins at the initial weights, and halves."""

  name = 'pull_back'

  def client_state(self, weights):
    return collections.OrderedDict(ended=weights, rounds=0.0)

  def gradient(self, client, theta, g):
    return tuple(g + w - e for g, w, e in zip(g, theta, client.client_state['ended']))

  def client_update(self, client, g_i, steps):
    ended = tuple(w - g for w, g in zip(client.theta_0, g_i))
    return collections.OrderedDict(ended=ended, rounds=client.client_state['rounds'] + 1), ()

  def server_update(self, server_state, server):
    return server_state, tuple(g / 2 for g in server.g_bar)


def test_a_correction_may_keep_anything_begin_anywhere_and_change_the_servers_step(graph):
  process = build(PullBack(), training=TRAINING)
  first = oracle.pack(process.initial_client_state['ended'])
  initial = small_problem.linear_model().initial_weights[0]
  np.testing.assert_array_equal(first, oracle.pack(initial))
  trained = run(graph, process, [3])
  ended = oracle.pack(trained.client_states[3]['ended'])
  assert trained.client_states[3]['rounds'] == 1
  assert np.abs(ended - first).max() > 0.01
  np.testing.assert_allclose(trained.theta_bar, ended, atol=1e-6)  # The mean of one client.
  np.testing.assert_allclose(trained.theta, (first + ended) / 2, atol=1e-6)
  model_weights = process.get_model_weights(trained.state).trainable
  np.testing.assert_array_equal(oracle.pack(model_weights), trained.theta_bar)
  assert trained.metrics['client_work']['updates']['h_i_norm_mean'] == 0
  assert trained.metrics['client_work']['updates']['first_time_clients'] == 0


def test_the_servers_part_begins_at_the_weights_that_are_drawn(graph):
  class Keeps(corrections.Correction):
    def server_state(self, weights):
      return tuple(weights)

  def draws():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(5,))]),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(tf.TensorSpec([None, 5]), tf.TensorSpec([None, 3])),
    )

  state = engines.run(graph, build(Keeps(), draws).initialize)
  assert np.abs(state.correction[0]).max() > 0
  for actual, wanted in zip(state.correction, state.global_model_weights.trainable):
    np.testing.assert_array_equal(actual, wanted)


class Twice(corrections.Correction):
  """Takes the gradients at two other points in each step."""

  name = 'twice'

  def gradient(self, client, theta, g):
    far = client.gradient_at(tuple(3 * w for w in client.theta_0))
    return tuple(a + b - c for a, b, c in zip(g, client.gradient_at(client.theta_0), far))


def test_gradients_at_several_points_do_not_mix_their_weights(graph):
  for_both = [
    run(graph, build(Twice(), model, training=TRAINING), [0, 1, 2]).theta
    for model in (small_problem.model(client_axis=False), small_problem.keras_model)
  ]
  closeness.assert_close(*for_both)


def test_hyperparameters_of_the_server_can_be_read_and_changed(graph):
  process = build(corrections.FedCM(), training=TRAINING, server_optimizer=SERVER)

  def change():
    state = process.initialize()
    hparams = process.get_hparams(state)
    faster = {**hparams['finalizer'], 'learning_rate': np.float32(0.5)}
    zeros = tf.nest.map_structure(np.zeros_like, process.get_model_weights(state))
    weights = process.get_model_weights(process.set_model_weights(state, zeros))
    assert not any(np.any(w) for w in weights.trainable)
    changed = {**hparams, 'finalizer': faster}
    return hparams, process.get_hparams(process.set_hparams(state, changed))

  before, after = engines.run(graph, change)
  rates = [hyperparameters['finalizer']['learning_rate'] for hyperparameters in (before, after)]
  np.testing.assert_array_equal(rates, [np.float32(0.25), 0.5])


@pytest.mark.exhaustive
def test_the_clients_rate_is_a_hyperparameter_as_in_tff(graph):
  """The rate of another process, set in this one, gives the other's rounds."""
  model = small_problem.linear_model()
  sgd = tff.learning.optimizers.build_sgdm
  slow = algorithms.build_fed_avg(model, client_learning_rate=0.2, training=TRAINING)
  fast = algorithms.build_fed_avg(model, client_learning_rate=0.5, training=TRAINING)
  scheduled = algorithms.build_fed_avg(model, client_learning_rate=lambda t: 0.5, training=TRAINING)
  of_tff = tff.learning.algorithms.build_weighted_fed_avg(model, sgd(0.2))

  def rounds(process, state):
    for cohort in ([0, 1], [2, 3]):
      data = [small_problem.element(DATA[i], i) for i in cohort]
      state = process.next(state, data).state
    return oracle.pack(state.global_model_weights.trainable), process.get_hparams(state)

  def run_all():
    hparams = slow.get_hparams(slow.initialize())
    hparams['client_work']['learning_rate'] = np.float32(0.5)
    changed = slow.set_hparams(slow.initialize(), hparams)
    one = rounds(slow, changed)
    other = rounds(fast, fast.initialize())
    assert scheduled.get_hparams(scheduled.initialize())['client_work'] == ()
    return one, other, slow.get_hparams(slow.initialize()), of_tff.get_hparams(of_tff.initialize())

  (theta, hparams), (wanted, of_fast), before, tffs = engines.run(graph, run_all)
  np.testing.assert_array_equal(theta, wanted)
  engines.assert_same(hparams, of_fast, rtol=0, atol=0)
  assert before['client_work'] == {'learning_rate': np.float32(0.2)}
  assert before.keys() == tffs.keys()


def test_a_round_with_clients_that_diverge_or_have_no_examples_is_one_without_them(graph):
  process = small_problem.process('ada_best', build_model=small_problem.linear_model)
  diverges = (np.float32(np.nan) * DATA[4][0], DATA[4][1])
  data = [*DATA, diverges, tuple(array[:0] for array in DATA[0])]
  trained = run(graph, process, [0, 4], [1, 7, 2, 8], data=data)
  wanted = run(graph, process, [0, 4], [1, 2])
  np.testing.assert_allclose(trained.theta, wanted.theta, atol=1e-7)
  updates = trained.metrics['client_work']['updates']
  others = wanted.metrics['client_work']['updates']
  assert (updates['non_finite_clients'], others['non_finite_clients']) == (1, 0)
  for key in set(updates) - {'non_finite_clients'}:
    np.testing.assert_allclose(updates[key], others[key], rtol=1e-5, err_msg=key)
  np.testing.assert_allclose(
    *(r.metrics['client_work']['train']['loss'] for r in (trained, wanted)), rtol=1e-6
  )
  closeness.assert_close(trained.h, wanted.h)
  np.testing.assert_allclose(trained.theta_bar, wanted.theta_bar, atol=1e-7)
  engines.assert_same(trained.client_states[7], process.initial_client_state, rtol=0, atol=0)


def test_an_aggregator_of_tff_composes_with_clients_that_remember(graph):
  """AdaBest with each g_i clipped to norm 0.1 at the aggregation, against the oracle's formulas."""
  clip = tff.aggregators.clipping_factory(0.1, tff.aggregators.MeanFactory())
  options = {'mu': 0.3, 'beta': 0.5, 'aggregator': clip}
  process = small_problem.process('ada_best', build_model=small_problem.linear_model, **options)
  trained = run(graph, process)
  h = np.zeros_like(trained.h)
  for cohort in ([0, 1, 2], [3, 1]):
    before = {i: trained.h_i(i) for i in cohort}
    theta = trained.theta
    engines.run(graph, trained.round, cohort)
    # One round apart, h_i <- h_i / 1 + g_i reveals g_i.
    g = [trained.h_i(i) - before[i] for i in cohort]
    norms = [np.linalg.norm(g_i) for g_i in g]
    assert min(norms) > 0.1
    g_bar = np.mean([g_i * 0.1 / norm for g_i, norm in zip(g, norms)], 0)
    h = 0.5 * (h + g_bar)
    closeness.assert_close(trained.theta_bar, theta - g_bar)
    closeness.assert_close(trained.h, h)
    closeness.assert_close(trained.theta, theta - g_bar - h)
  assert trained.metrics['aggregator']['clipped_count'] == 2
