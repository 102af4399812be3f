"""The drift experiment: its runs are AdaBest's setting, its tables say what the files say."""

import json
import pathlib

import pytest

from research.experiments import drift_corrections
from scripts.cli import command, flags, resolve
from tff_adaptive._utils import atomic_files

_CONFIG = pathlib.Path(drift_corrections.__file__).parents[2] / 'scripts/configs/drift_digits.flags'


def write_run(folder, algorithm, server, alpha, seed, test, rounds=300, lost=0):
  task_option = ['validation=test', f'alpha={alpha}']
  arguments = [f'--flagfile={_CONFIG}', f'--algorithm={algorithm}', f'--seed={seed}']
  settings = resolve.resolve(flags.parse(['train.py', *arguments])).flat()
  settings.update(server_optimizer=server, task_option=task_option)
  config = {
    'settings': settings,
    'num_parameters': 100_000,
    'versions': {'python': '3.11'},
    'started': '2026-11-21T10:00:00+00:00',
    'git_revision': 'abc',
  }
  folder.mkdir(parents=True)
  atomic_files.write_json(str(folder / 'config.json'), config)
  column = 'validation_accuracy' if algorithm == 'fed_avg' else 'inference_accuracy'
  heading = f'round,{column},seconds_round,non_finite_clients'
  lines = [heading, '0,0.1,0,0', f'{rounds},0.5,60,{lost}']
  (folder / 'metrics.csv').write_text('\n'.join(lines) + '\n')
  (folder / 'summary.json').write_text(json.dumps({'test': test}))


@pytest.fixture
def folder(tmp_path):
  folder = tmp_path / 'runs'
  for seed, accuracy in ((0, 0.90), (1, 0.92)):
    test = {'test_accuracy': accuracy}
    write_run(folder / f'a{seed}', 'fed_avg', 'sgd', '0.3', seed, test)
  both = {'test_accuracy': 0.1, 'test_inference_accuracy': 0.955}
  write_run(folder / 'b', 'ada_best', 'yogi', 'inf', 0, both)
  write_run(folder / 'd0', 'scaffold', 'sgd', '0.3', 0, {'test_accuracy': 0.1}, lost=7)
  write_run(folder / 'd1', 'scaffold', 'sgd', '0.3', 1, {'test_accuracy': 0.9})
  write_run(folder / 'c', 'ada_best', 'sgd', 'inf', 0, both, rounds=299)  # Not complete.
  return folder


def test_the_table_has_theta_bar_on_test_data_with_its_spread(folder):
  text = drift_corrections.report(drift_corrections.collect(str(folder)))
  assert '|  | alpha = 0.3 | IID |' in text
  assert '| FedAvg | 91.00 ± 1.41 (2) |  |' in text
  assert '| AdaBest x Yogi |  | 95.50 (1) |' in text
  assert '| AdaBest |  |  |' in text
  assert '| SCAFFOLD | 50.00 ± 56.57 (2, 1 diverged; without: 90.00) |  |' in text
  assert '5 runs, 5 minutes' in text


def test_the_command_writes_table_and_figure(folder, tmp_path):
  results = str(tmp_path / 'new' / 'drift')
  arguments = [
    'drift_corrections.py',
    '--report_only',
    f'--output_dir={folder}',
    f'--results={results}',
  ]
  assert drift_corrections.main(arguments) == 0
  assert (tmp_path / 'new' / 'drift.png').stat().st_size > 5000
  assert 'FedAvg' in (tmp_path / 'new' / 'drift.md').read_text()


def test_the_runs_are_ada_bests_setting(tmp_path, monkeypatch):
  given = ['x', f'--output_dir={tmp_path}', f'--data_dir={tmp_path}']
  command.parse(drift_corrections._FLAGS, '', given)
  found = [job for jobs in drift_corrections.jobs().values() for job in jobs]
  assert len(found) == 2 * 5 * 3 * 3
  assert {s.data_dir for s in found if s.task == 'mnist_skewed'} == {str(tmp_path)}
  common = {
    'rounds': 300,
    'clients_per_round': 10,
    'client_epochs': 5,
    'batch_size': 45,
    'fill_last_batch': True,
    'client_learning_rate': 0.1,
    'weight_decay': 1e-4,
    'client_weighting': 'uniform',
  }
  for s in found:
    assert {name: getattr(s, name) for name in common} == common
    assert s.client_rate_schedule(1) == pytest.approx(0.1 * 0.998)
  assert {s.correction['mu'] for s in found if 'mu' in s.correction} == {0.02}
  published = {s.correction.get('beta') for s in found if s.server_optimizer == 'sgd'}
  assert published == {None, 0.96}
  folders = {s.output_dir for s in found}
  assert f'{tmp_path}/digits_yogi/seed=0,task_option=alpha=0.3,algorithm=ada_best' in folders
