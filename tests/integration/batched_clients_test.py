"""Clients that train together get what they get one after another."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import algorithms, engine, models, registry
from tff_adaptive.client import ClientTraining, batching, whole_client
from tff_adaptive.devices import placement

SIZES = (23, 40, 7, 9, 31)  # Unequal, and none a multiple of the batch size.


def build_model(client_axis, dropout=0.3, penalty=None, shapes=None):
  """A model of two layers, which appends the shapes of its inputs to `shapes`."""
  rng = np.random.default_rng(1)

  def forward(weights, x, training, seed):
    if shapes is not None:
      shapes.append(x.shape.as_list())
    hidden = tf.nn.relu(tf.matmul(x, weights[0]) + weights[1][..., tf.newaxis, :])
    hidden = models.dropout(hidden, dropout, seed, 1)
    return tf.matmul(hidden, weights[2]) + weights[3][..., tf.newaxis, :]

  return models.Model(
    initial_weights=(
      0.3 * rng.standard_normal((20, 8)).astype(np.float32),
      np.zeros(8, np.float32),
      0.3 * rng.standard_normal((8, 5)).astype(np.float32),
      np.zeros(5, np.float32),
    ),
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    metrics={'accuracy': models.accuracy},
    x_spec=tf.TensorSpec([None, 20]),
    y_spec=tf.TensorSpec([None], tf.int32),
    client_axis=client_axis,
    penalty=penalty,
  )


def cohort_of(sizes=SIZES, bad_client=None):
  rng = np.random.default_rng(2)
  cohort = []
  for i, n in enumerate(sizes):
    x = rng.standard_normal((n, 20)).astype(np.float32)
    if i == bad_client:
      x[0, 0] = np.inf
    y = rng.integers(0, 5, n).astype(np.int32)
    cohort.append(whole_client.client_arrays(x, y, i))
  return cohort


def run(process, cohort, clients_per_step, rounds=2):
  with engine.graph_context(clients_per_step=clients_per_step):
    state, results = process.initialize(), []
    kept = [getattr(process, 'initial_client_state', ())] * len(cohort)
    for _ in range(rounds):
      if isinstance(process, algorithms.StatefulProcess):
        state, kept, metrics = process.next(state, kept, cohort)
      else:
        state, metrics = process.next(state, cohort)
      results.append((state, list(kept), metrics))
  return [np.asarray(leaf) for leaf in tf.nest.flatten(results)]


CASES = [
  ('fed_yogi', True, {'server_learning_rate': 0.1}),
  ('fed_yogi', False, {'server_learning_rate': 0.1}),
  ('fed_prox', True, {'mu': 0.1, 'training': {'weight_decay': 0.01, 'clip_norm': 0.5}}),
  ('scaffold', True, {'num_clients': 6, 'scaffold_option': 1}),
  ('scaffold', True, {'num_clients': 6, 'training': {'weight_decay': 0.01}}),
  ('scaffold_m', True, {'num_clients': 6}),
  ('fed_dyn', True, {'num_clients': 6, 'mean_examples': 20.0}),
  ('ada_best', True, {'scale_mu': True}),
]


@pytest.mark.parametrize('name, client_axis, options', CASES)
def test_groups_equal_single_clients(name, client_axis, options):
  options = dict(options)
  own = options.pop('training', {})
  process = algorithms.build(
    name,
    build_model(client_axis),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8, 2), **own),
    **options,
  )
  single = run(process, cohort_of(), 1)
  together = run(process, cohort_of(), 2)  # The last group is not full.
  for a, b in zip(single, together):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_a_penalty_does_not_move_clients_that_have_taken_their_steps():
  def penalty(weights):
    return 0.1 * tf.add_n([tf.reduce_sum(w * w, [-2, -1]) for w in (weights[0], weights[2])])

  process = algorithms.build_fed_avg(
    build_model(True, penalty=penalty),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8)),
  )
  single = run(process, cohort_of((40, 4)), 1)
  together = run(process, cohort_of((40, 4)), 2)
  for a, b in zip(single, together):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_every_correction_is_among_the_cases():
  servers_only = {'fed_avg', 'fed_avgm', 'fed_adagrad', 'fed_adam'}  # As FedYogi's.
  assert {name for name, _, _ in CASES} == set(registry.ALGORITHMS) - servers_only


def test_a_client_that_diverges_does_not_disturb_its_group():
  process = algorithms.build_ada_best(
    build_model(True),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8)),
  )
  single = run(process, cohort_of(bad_client=1), 1)
  together = run(process, cohort_of(bad_client=1), 5)
  for a, b in zip(single, together):
    assert not np.any(np.isnan(b))
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
  'num_gpus, client_axis, together', [(1, True, 5), (2, True, 3), (1, False, None)]
)
def test_on_gpus_unequal_clients_train_together_unasked(
  num_gpus, client_axis, together, monkeypatch
):
  shapes = []
  process = algorithms.build(
    'ada_best',
    build_model(client_axis, shapes=shapes),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(8, 2)),
  )
  single = run(process, cohort_of(), 1)
  del shapes[:]
  gpus = placement.Placement(('/CPU:0',) * num_gpus, is_gpu=True)  # The CPU plays them.
  monkeypatch.setattr(placement, 'place', lambda device, names: gpus)
  unasked = run(process, cohort_of(), None)
  assert {shape[0] for shape in shapes if len(shape) == 3} == ({together} if together else set())
  for a, b in zip(single, unasked):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
