"""--algorithm=centralized: one client with the examples of all, whose optimizer keeps its state."""

import json

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from scripts import sweep, train
from tests.helpers import fakes, settings, sweep_pool
from tff_adaptive.runs import names

_ALL_AT_ONCE = ('--batch_size=0', '--rounds=3', '--rounds_per_evaluation=1')


def _train(folder, *flags):
  command = ['--algorithm=centralized', '--task=least_squares', f'--output_dir={folder}', *flags]
  with fakes.no_figures():
    return train.main(['train.py', *command])


def _descent(beta, rate, most=None):
  """Returns the weights after three steps on all examples, by NumPy."""
  task = tasks.load('least_squares')
  parts = [task.train.load(client) for client in task.train.client_ids]
  a = np.concatenate([part['x'][:most] for part in parts]).astype(np.float64)
  b = np.concatenate([part['y'][:most] for part in parts]).astype(np.float64)
  weights = task.build_model(0).initial_weights[0][0].astype(np.float64)
  velocity = np.zeros_like(weights)
  for _ in range(3):
    velocity = beta * velocity + a.T @ (a @ weights - b)
    weights = weights - rate * velocity
  return weights


@pytest.mark.parametrize(
  'beta, most, flags',
  [
    (0.0, None, ()),
    (0.0, 7, ('--max_examples_per_client=7',)),
    (0.8, None, ('--client_optimizer=sgdm', '--client_optimizer_option=momentum=0.8')),
  ],
)
@pytest.mark.sample(1)
def test_it_is_descent_on_all_examples_with_one_momentum(tmp_path, beta, most, flags):
  assert _train(tmp_path, *_ALL_AT_ONCE, '--client_learning_rate=0.05', *flags) == 0
  run = tasks.load_run(str(tmp_path))
  np.testing.assert_allclose(run.weights[0], _descent(beta, 0.05, most), rtol=1e-5)
  last = float(fakes.rows(tmp_path)[-1]['validation_loss'])
  assert run.evaluate()['loss'] == pytest.approx(last, abs=1e-6)


@pytest.mark.exhaustive
def test_a_stopped_run_resumes_to_the_same_numbers(tmp_path):
  flags = ('--client_optimizer=adam', '--batch_size=7', '--rounds_per_evaluation=1')
  assert _train(tmp_path / 'whole', *flags, '--rounds=4') == 0
  for rounds in (2, 4):
    assert _train(tmp_path / 'parts', *flags, f'--rounds={rounds}') == 0
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  config = json.loads((tmp_path / 'whole' / 'config.json').read_text())
  assert config['data']['pooled_clients'] == 5
  assert (config['data']['clients'], config['data']['examples']) == (1, 100)
  assert names.composition(config['settings']) == 'Centralised (clients: Adam, kept)'


def test_defaults_are_an_epoch_a_round_and_no_settings_of_federated_clients():
  run = settings.of('--algorithm=centralized', '--task=fed_heart', '--client_optimizer=adam')
  assert (run.training.rounds, run.training.clients_per_round) == (100, 1)
  assert (run.training.client_epochs, run.training.local_steps) == (1, None)
  assert (run.training.batch_size, run.training.continue_batches) == (4, None)
  assert (run.rates.client_learning_rate, run.rates.server_learning_rate) == (0.001, 1.0)
  assert run.what.client_optimizer_state == 'keep'
  assert run.output.output_dir == 'runs/fed_heart_centralized'
  skewed = settings.of('--algorithm=centralized', '--task=mnist_skewed', '--client_optimizer=adam')
  assert skewed.rates.client_schedule == 'constant'
  steps = settings.of(
    '--algorithm=centralized', '--client_learning_rate=1', '--local_steps=9', '--continue_batches'
  )
  assert (steps.training.local_steps, steps.training.client_epochs) == (9, None)


@pytest.mark.parametrize(
  'flags, words',
  [
    ((), '--algorithm=centralized has no default rate for sgd: give --client_learning_rate'),
    (('--client_learning_rate=1', '--clients_per_round=3'), 'trains one client'),
    (('--client_learning_rate=1', '--participation=0.5'), 'trains one client'),
    (('--client_learning_rate=1', '--availability=diurnal'), 'trains one client'),
    (('--client_learning_rate=1', '--client_optimizer_state=keep'), 'no meaning'),
    (('--client_learning_rate=1', '--server_optimizer=adam'), 'whose server is sgd'),
  ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, capsys, flags, words):
  assert _train(tmp_path / 'x', *flags) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'x').exists()


def test_pooled_clients_load_once_and_are_not_copied():
  clients = tasks.load('least_squares').train
  pooled = tasks.PooledClients(clients)
  assert list(pooled.client_ids) == ['all']
  assert pooled.num_examples('all') == sum(map(clients.num_examples, clients.client_ids)) == 100
  first = pooled.load('all')
  second = pooled.load('all')
  assert first['x'] is second['x']
  np.testing.assert_array_equal(first['y'][20:40], clients.load(clients.client_ids[1])['y'])
  assert tasks.PooledClients(clients, 3).num_examples('all') == 15
  with pytest.raises(tasks.DataError, match="unknown client '0'"):
    pooled.load('0')


def test_a_sweep_varies_its_rate(tmp_path, monkeypatch):
  pytest.importorskip('optuna')
  runs = sweep_pool.Runs(lambda run: 0.5)
  sweep_pool.install(monkeypatch, runs)
  command = [f'--output_dir={tmp_path}', '--search=random', '--trials=3', '--grid=seed=0,1']
  command += ['--grid=algorithm=centralized,fed_avg', '--range=client_learning_rate=0.1,1']
  assert sweep.main(['sweep.py', *command, '--', '--rounds=2']) == 0
  assert len(runs.settings) == 6
  assert 'centralized' in {run.what.algorithm for run in runs.settings}
