"""Attacks: what the server receives, who attacks, and that robust rules withstand it."""

import numpy as np
import pytest

from tests.helpers import engines, fakes, settings
from tff_adaptive import ClientTraining, aggregation, algorithms, engine, population, training
from tff_adaptive.client import Batching, client_arrays, entries
from tff_adaptive.training import cohorts
from tff_adaptive_tasks import least_squares

TASK = least_squares.load(num_clients=4, rows=6, columns=3)


def process(attack, aggregator=None):
  batching = Batching(2)
  return algorithms.build_fed_avg(
    TASK.build_model(0),
    client_learning_rate=0.2,
    training=ClientTraining(batching=batching, attack=attack, measures='basic'),
    client_weighting='uniform',
    aggregator=aggregator,
  )


def first_round(context, built, strengths):
  """The state before the first round, and its output; a client without a strength is absent."""
  data = []
  for position, strength in enumerate(strengths):
    if strength is not None:
      arrays = TASK.train.load(TASK.train.client_ids[position])
      more = {'attack': np.float32(strength)}
      data.append(client_arrays(arrays['x'], arrays['y'], position, **more))

  def run():
    state = built.initialize()
    return state, built.next(state, data)

  return engines.run(context, run)


def step(context, built, strengths):
  """The mean of what clients send in the first round."""
  before, output = first_round(context, built, strengths)
  after = output.state.global_model_weights.trainable[0]
  return np.asarray(before.global_model_weights.trainable[0]) - np.asarray(after)


def measured_norms(context, built, strengths):
  """The norm of each client's update, as the client measures it."""
  _, output = first_round(context, built, strengths)
  return output.metrics['client_work']['clients'][:, entries.MEASURES.index('update_norm')]


@pytest.fixture(scope='module', params=[1, 4], ids=['one by one', 'in groups'])
def context(request):
  return engine.GraphContext(clients_per_step=request.param)


def honest(context, built):
  """What each client sends if it does not attack."""
  sent = []
  for position in range(4):
    clients = [None] * 4
    clients[position] = 0
    sent.append(step(context, built, clients))
  return sent


@pytest.mark.parametrize(
  'attack, factor', [('sign_flip', -1.5), ('scaling', 1.5), ('free_rider', 0.0)]
)
@pytest.mark.sample(1)
def test_attackers_send_a_multiple_of_their_update(context, attack, factor):
  built = process(attack)
  updates = honest(context, built)
  updates[1] = factor * updates[1]
  np.testing.assert_allclose(step(context, built, [0, 1.5, 0, 0]), np.mean(updates, 0), atol=1e-6)
  norms = measured_norms(context, built, [0, 1.5, 0, 0])
  np.testing.assert_allclose(norms, np.linalg.norm(updates, axis=1), rtol=1e-5)


@pytest.mark.sample(1)
def test_noise_has_its_size_and_its_own_draws(context):
  built = process('noise')
  updates = honest(context, built)
  noise = []
  for position in (1, 2):
    strengths = [2.0 if i == position else None for i in range(4)]
    sent = step(context, built, strengths)
    again = step(context, built, strengths)
    np.testing.assert_array_equal(sent, again)
    noise.append(sent - updates[position])
  relative = [np.linalg.norm(n) / np.linalg.norm(updates[i]) for n, i in zip(noise, (1, 2))]
  assert all(0.2 < size < 6 for size in relative)  # 3 coordinates: wide, but neither 0 nor huge.
  assert not np.allclose(*noise)


@pytest.mark.sample(1)
def test_inner_product_attackers_send_a_multiple_of_the_mean_of_the_others(context):
  factory = aggregation.InnerProductFactory(0.5)
  built = process('inner_product', factory)
  updates = honest(context, built)
  of_honest = np.mean([updates[0], updates[2], updates[3]], 0)
  expected = (3 * of_honest - 0.5 * of_honest) / 4
  np.testing.assert_allclose(step(context, built, [0, 0.5, 0, 0]), expected, atol=1e-6)
  # An attacker does not know what the server will take for its update.
  updates[1] = np.full(3, np.nan)
  norms = measured_norms(context, built, [0, 0.5, 0, 0])
  np.testing.assert_allclose(norms, np.linalg.norm(updates, axis=1), rtol=1e-5)


@pytest.mark.exhaustive
def test_a_robust_rule_withstands_what_moves_the_mean(context):
  rule = aggregation.RuleFactory(aggregation.median)
  of_honest = np.mean(honest(context, process('scaling')), 0)
  strengths = [0, 1000.0, 0, 0]
  moved = step(context, process('scaling'), strengths) - of_honest
  held = step(context, process('scaling', rule), strengths) - of_honest
  assert np.linalg.norm(moved) > 20 * np.linalg.norm(held)


def test_the_seed_draws_who_attacks():
  who = population.Attackers(0.25)
  first = who.positions(20, 3)
  assert len(first) == 5
  np.testing.assert_array_equal(first, who.positions(20, 3))
  assert set(first) != set(who.positions(20, 4))
  assert len(population.Attackers(0.01).positions(20, 3)) == 1


class Labelled(fakes.Clients):
  """Clients with the labels 0, 1, 2, 0, ..."""

  def load(self, client_id):
    arrays = super().load(client_id)
    return {**arrays, 'y': np.arange(len(arrays['y']), dtype=np.int32) % 3}


def test_flipped_labels_are_those_of_attackers_only():
  who = population.Attackers(0.5, 'label_flip', classes=3)
  source = cohorts.ClientSource(Labelled(), None, who, seed=1)
  positions = set(who.positions(20, 1).tolist())
  for i, client_id in enumerate(Labelled.client_ids):
    labels = Labelled().load(client_id)['y']
    ((data,),) = source.load([(client_id, i, ())])
    np.testing.assert_array_equal(data['y'], 2 - labels if i in positions else labels)
    assert data['y'].dtype == np.int32
  with pytest.raises(ValueError, match='label_flip needs labels from 0 to 1, found int32'):
    population.Attackers(0.5, 'label_flip', classes=2).flipped(np.arange(3, dtype=np.int32))


def test_a_run_counts_its_attackers_and_records_them(tmp_path):
  who = population.Attackers(0.4, 'label_flip', classes=3)
  options = {'clients': Labelled(), 'attackers': who}
  fakes.train(tmp_path, 4, **options)
  expected = set(who.positions(20, 3).tolist())
  counted = [int(row['attackers']) for row in fakes.rows(tmp_path)[1:]]
  for number, count in enumerate(counted, 1):
    assert count == len(expected & set(cohorts.sample(3, number, 20, 5).tolist()))
  recorded = training.TrainingConfig(2, 2, attackers=who).record().settings['attackers']
  assert recorded == {
    'kind': 'Attackers', 'share': 0.4, 'attack': 'label_flip', 'scale': None, 'classes': 3
  }  # fmt: skip


def test_flags_make_attackers():
  assert settings.of().attack.build() is None
  flags = ['--attackers=0.2', '--attack=scaling', '--attack_option=scale=3']
  run_settings = settings.of(*flags)
  assert run_settings.attack.build() == population.Attackers(0.2, 'scaling', 3)
  task = type('Task', (), {'unit_starts': None})
  assert run_settings.client_training(task).attack == 'scaling'
  assert run_settings.client_training(task, epochs=1).attack is None


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--attack=noise'], '--attack needs --attackers'),
    (['--attackers=0'], 'share must be above 0'),
    (['--attackers=1.5'], r'--attackers must be in \[0, 1\)'),
    (['--attackers=0.2', '--attack=label_flip'], '--attackers: classes must be at least 2'),
    (['--attackers=0.2', '--attack_option=scale=-1'], 'scale must be finite and above 0'),
    (['--attackers=0.2', '--attack_option=size=1'], "unknown option of attack 'size'"),
    (['--attackers=0.2', '--attack_option=classes=3'], 'classes has no meaning for sign_flip'),
  ],
)
def test_bad_flags_are_refused(flags, words):
  with pytest.raises(ValueError, match=words):
    settings.of(*flags)


def test_a_process_built_for_another_attack_is_refused():
  config = training.TrainingConfig(2, 2, attackers=population.Attackers(0.5))
  with pytest.raises(ValueError, match="attack='sign_flip'"):
    training.train(process(None), TASK.train, None, config)
  with pytest.raises(ValueError, match='attack needs clients that are given as whole arrays'):
    ClientTraining(attack='noise')
