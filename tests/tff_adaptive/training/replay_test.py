"""What single clients did: the measured columns of a ledger, a trace, and a round done again."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import fakes, killed, small_problem, tensorflow_log
from tff_adaptive import corrections, costs, engine, population, registry, runs, training
from tff_adaptive.aggregation import ClientNormsFactory
from tff_adaptive.runs import ledger as ledger_lib, state_file, state_store
from tff_adaptive.training import replay as replay_lib

DATA = small_problem.clients()
# Three examples, which are one batch: client 0 takes a single step.
TRACED = 'c0'


class Clients:
  client_ids = tuple(f'c{i}' for i in range(small_problem.NUM_CLIENTS))

  def num_examples(self, client_id):
    return small_problem.NUM_EXAMPLES[int(client_id[1:])]

  def load(self, client_id):
    x, y = DATA[int(client_id[1:])]
    return collections.OrderedDict(x=x, y=y)


CONFIG = training.TrainingConfig(
  rounds=4,
  clients_per_round=4,
  seed=1,
  rounds_per_evaluation=9,
  rounds_per_checkpoint=2,
  cost_model=costs.CostModel(registry.Counts(), 43, 4),
)


@pytest.fixture(scope='module', autouse=True)
def without_a_word_of_tensorflow():
  """A program may replay many clients: TensorFlow would warn of retracing at the fifth."""
  with tensorflow_log.lines() as logged:
    yield
  assert logged == []


@functools.cache
def context():
  return engine.GraphContext()


def in_one_context():
  """The graph engine, which keeps the traces of a process."""
  return tff.framework.get_context_stack().install(context())


def build(measures=None, **options):
  return small_problem.process('fed_dyn', measures=measures, mu=0.1, **options)


def train(folder, process, config):
  with in_one_context(), fakes.no_figures():
    return training.train(
      process,
      Clients(),
      lambda weights: {'loss': 1.0},
      config,
      output_dir=str(folder),
      show_progress=False,
    )


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run with a full ledger and a trace, its process and its configuration."""
  folder = tmp_path_factory.mktemp('run')
  process = build('full', aggregator=ClientNormsFactory(cosines=True))
  config = dataclasses.replace(CONFIG, ledger=True, trace_client=TRACED)
  result = train(folder, process, config)
  return folder, process, config, result


def replay(run, number, client_id, **options):
  folder, process, config, _ = run
  with in_one_context(), fakes.no_figures():
    return training.replay_client(
      str(folder),
      number,
      client_id,
      process=process,
      clients=Clients(),
      config=config,
      **options,
    )


@pytest.fixture(scope='module')
def third_round(run):
  """The clients of round 3 by id, each trained again."""
  table = runs.load_run(str(run[0])).ledger
  ids = table[table['round'] == 3]['client']
  return {client_id: replay(run, 3, client_id) for client_id in ids}


def flat(leaves):
  return np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(np.float64)


def cosine(a, b):
  return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def loss_and_gradient(weights, client_id):
  """The mean loss of a client's examples and its gradient, by TensorFlow alone."""
  x, y = DATA[int(client_id[1:])]
  variables = [tf.constant(w) for w in weights]
  with tf.GradientTape() as tape:
    tape.watch(variables)
    w, a, v, c = variables
    logits = tf.tanh(x @ w + a) @ v + c
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
  return float(loss), flat(tape.gradient(loss, variables))


def test_a_run_has_the_same_bits_with_and_without_a_ledger_and_a_trace(run, tmp_path):
  folder, _, _, result = run
  plain = train(tmp_path, build(), CONFIG)
  np.testing.assert_array_equal(
    flat(result.state.global_model_weights.trainable),
    flat(plain.state.global_model_weights.trainable),
  )
  assert fakes.rows(folder) == fakes.rows(tmp_path)


def test_the_ledger_has_losses_norms_and_cosines(run, third_round):
  table = runs.load_run(str(run[0])).ledger
  rows = table[table['round'] == 3].set_index('client')
  assert set(rows['outcome']) == {'counted'}
  mean = np.mean([flat(client.update) for client in third_round.values()], axis=0)
  for client_id, client in third_round.items():
    row = rows.loc[client_id]
    update = flat(client.update)
    after = [w - u for w, u in zip(client.weights, client.update)]
    loss, gradient = loss_and_gradient(client.weights, client_id)
    assert row['loss_before'] == pytest.approx(loss, rel=1e-5)
    assert row['gradient_norm'] == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    assert row['loss_after'] == pytest.approx(loss_and_gradient(after, client_id)[0], rel=1e-5)
    assert row['update_norm'] == pytest.approx(np.linalg.norm(update), rel=1e-6)
    assert row['cosine_mean'] == pytest.approx(cosine(update, mean), abs=1e-5)
    total, count = client.metrics['loss']
    assert row['train_loss'] == pytest.approx(total / count, rel=1e-6)
    # FedDyn sets h_i <- h_i + g_i.
    before = flat(client.client_state['h']) - update
    if np.linalg.norm(before) < 1e-6:
      assert np.isnan(row['cosine_h'])
    else:
      assert row['cosine_h'] == pytest.approx(cosine(update, before), abs=1e-4)
  assert rows['cosine_h'].notna().any()


@pytest.mark.exhaustive
def test_a_client_that_diverged_is_named(tmp_path, monkeypatch):
  class WithNaN(Clients):
    def load(self, client_id):
      arrays = super().load(client_id)
      if client_id == 'c1':
        arrays['x'] = np.full_like(arrays['x'], 1e30)
      return arrays

  config = dataclasses.replace(CONFIG, rounds=1, clients_per_round=7, ledger=True)
  process = build('basic', rate=1e30)
  with in_one_context(), fakes.no_figures(), pytest.warns(UserWarning, match='diverge'):
    training.train(
      process,
      WithNaN(),
      lambda weights: {'loss': 1.0},
      config,
      output_dir=str(tmp_path),
      show_progress=False,
    )
  table = ledger_lib.read(str(tmp_path)).set_index('client')
  diverged = int(fakes.rows(tmp_path)[1]['non_finite_clients'].partition('.')[0])
  assert (table['outcome'] == 'diverged').sum() == diverged >= 1
  assert table.loc['c1', 'outcome'] == 'diverged'


@pytest.mark.exhaustive
def test_clients_of_a_group_measure_what_single_ones_do(run, tmp_path):
  folder, process, _, _ = run
  config = dataclasses.replace(CONFIG, ledger=True)
  with engine.graph_context(clients_per_step=3), fakes.no_figures():
    training.train(
      process,
      Clients(),
      lambda weights: {'loss': 1.0},
      config,
      output_dir=str(tmp_path),
      show_progress=False,
    )
  columns = [*registry_columns(), 'update_norm', 'cosine_mean']
  one = ledger_lib.read(str(folder))[columns]
  together = ledger_lib.read(str(tmp_path))[columns]
  np.testing.assert_allclose(together, one, rtol=2e-4, atol=2e-5)


def registry_columns():
  return ['train_loss', 'cosine_h', 'loss_before', 'loss_after', 'gradient_norm']


@pytest.mark.exhaustive
def test_the_trace_has_every_step_and_ends_at_the_update(run):
  trace = runs.load_run(str(run[0])).trace
  ledger = runs.load_run(str(run[0])).ledger
  of_client = ledger[ledger['client'] == TRACED].set_index('round')
  assert len(of_client)
  assert list(trace['round']) == list(of_client.index)
  assert set(trace['step']) == {1}
  for row in trace.to_dict('records'):
    of_round = of_client.loc[row['round']]
    assert row['loss'] == pytest.approx(of_round['loss_before'], rel=1e-5)
    assert row['gradient_norm'] == pytest.approx(of_round['gradient_norm'], rel=1e-5)
    assert row['distance'] == pytest.approx(of_round['update_norm'], rel=1e-5)


def test_a_replayed_client_has_the_bits_of_the_run(run):
  folder, process, _, _ = run
  table = runs.load_run(str(folder)).ledger
  last = table[table['round'] == 4]['client']
  path = state_file.path(str(folder))
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    stored = dict(zip(last, store.get(list(last))))
  client_id = last.iloc[0]
  client = replay(run, 4, client_id)
  np.testing.assert_array_equal(flat(client.client_state['h']), flat(stored[client_id]['h']))
  row = table[(table['round'] == 4) & (table['client'] == client_id)].iloc[0]
  assert np.float32(row['train_loss']) == client.metrics['loss'][0] / client.metrics['loss'][1]
  assert client.is_used
  assert client.weight == 1.0
  assert len(client.table) == -(-client.num_examples // 4)


@pytest.mark.exhaustive
def test_a_client_that_received_changes_is_followed_from_what_it_then_had(run, tmp_path):
  """The server sends a tenth of the changes, so that clients do not have its model."""
  process = small_problem.process(
    'fed_avg',
    measures='full',  # Norms of updates too, without a `ClientNormsFactory`.
    more_parts=(corrections.TopKDown(share=0.1),),
  )
  more = {'rounds': 2, 'clients_per_round': 7, 'rounds_per_checkpoint': 1}
  config = dataclasses.replace(CONFIG, ledger=True, trace_client=TRACED, **more)
  assert not replay_lib.begin_with_server_model(process)
  assert replay_lib.begin_with_server_model(run[1])
  result = train(tmp_path, process, config)
  loaded = runs.load_run(str(tmp_path))
  row = loaded.ledger.set_index(['round', 'client']).loc[2, TRACED]
  (step,) = loaded.trace[loaded.trace['round'] == 2].to_dict('records')
  assert step['loss'] == pytest.approx(row['loss_before'], rel=1e-6)
  assert step['distance'] == pytest.approx(row['update_norm'], rel=1e-6)
  client = replay((tmp_path, process, config, result), 2, TRACED)
  assert np.linalg.norm(flat(client.update)) == pytest.approx(row['update_norm'], rel=1e-6)
  assert client.steps['loss'][0] == pytest.approx(row['loss_before'], rel=1e-6)
  loss, _ = loss_and_gradient(client.weights, TRACED)
  assert loss == pytest.approx(row['loss_before'], rel=1e-6)


@pytest.mark.exhaustive
def test_eagerly_it_is_the_same_up_to_rounding(run, third_round):
  client_id, client = next(iter(third_round.items()))
  eager = replay(run, 3, client_id, eager=True)
  np.testing.assert_allclose(flat(eager.update), flat(client.update), rtol=1e-5, atol=1e-7)
  assert eager.weight is None


@pytest.mark.exhaustive
def test_eagerly_too_an_update_is_what_the_client_sent(tmp_path):
  """After an attack, and times the weight of a rule for cohorts."""
  process = small_problem.process(
    'fed_avg',
    measures='basic',
    attack='scaling',
    cohort_weights=True,
    client_weighting='uniform',
  )
  everybody = population.Attackers(0.99, 'scaling', 3.0)
  more = {'cohort': population.BySize('uniform'), 'attackers': everybody, 'rounds': 1}
  config = dataclasses.replace(CONFIG, ledger=True, clients_per_round=2, **more)
  result = train(tmp_path, process, config)
  rows = ledger_lib.read(str(tmp_path))
  assert not np.isclose(rows['weight'], 1).all()
  row = rows.iloc[0]
  for eager in (False, True):
    client = replay((tmp_path, process, config, result), 1, row['client'], eager=eager)
    assert np.linalg.norm(flat(client.update)) == pytest.approx(row['update_norm'], rel=1e-5)
    # Its steps are those of training.
    of_training = 3 * row['weight'] * client.steps['distance'][-1]
    assert row['update_norm'] == pytest.approx(of_training, rel=1e-5)


@pytest.mark.exhaustive
def test_the_beginning_is_trained_again_where_no_checkpoint_is_before(run):
  table = runs.load_run(str(run[0])).ledger
  client_id = table[table['round'] == 2]['client'].iloc[0]
  client = replay(run, 2, client_id)
  norm = table[(table['round'] == 2) & (table['client'] == client_id)]['update_norm'].iloc[0]
  assert np.linalg.norm(flat(client.update)) == pytest.approx(norm, rel=1e-6)


def test_what_cannot_be_replayed_is_one_line(run):
  with pytest.raises(ValueError, match='has done 4 rounds; give a round from 1 to 4'):
    replay(run, 9, 'c0')
  table = runs.load_run(str(run[0])).ledger
  absent = sorted({*Clients.client_ids} - {*table[table['round'] == 3]['client']})[0]
  with pytest.raises(ValueError, match=f"client '{absent}' did not take part in round 3"):
    replay(run, 3, absent)
  folder, process, config, result = run  # No checkpoint is before round 2.
  other = folder, process, dataclasses.replace(config, seed=2), result
  with pytest.raises(runs.ResumeError, match='seed was 1 and is now 2'):
    replay(other, 2, 'c0')
  with pytest.raises(ValueError, match='processes of tff_adaptive only'):
    training.replay_client(
      None, 1, 'c0', process=fakes.StatelessProcess(), clients=Clients(), config=CONFIG
    )


def test_a_trace_of_nobody_is_refused(tmp_path):
  config = dataclasses.replace(CONFIG, trace_client='c9')
  with pytest.raises(ValueError, match="trace_client: there is no client 'c9'; give one"):
    train(tmp_path, build('full', aggregator=ClientNormsFactory(cosines=True)), config)
  with pytest.raises(ValueError, match='no trace of a client'):
    ledger_lib.read(str(tmp_path), ledger_lib.TRACE)


def test_what_a_killed_replay_left_is_removed_by_the_next(run, tmp_path):
  folder = str(run[0])
  with killed.temporary_folders_in(tmp_path):
    with killed.before_folders_are_removed(), replay_lib._copy(folder):
      pass
    assert len(list(tmp_path.iterdir())) == 1
    with replay_lib._copy(folder):
      pass
  assert list(tmp_path.iterdir()) == []
