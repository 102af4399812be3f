"""scripts/sweep.py: every combination once; what failed is a row, what is bad is refused."""

import json
import os
import signal

import pytest

from scripts import sweep
from scripts.cli import grid


def _make(folder, values, column='validation_accuracy', **settings):
  """Writes a run whose `column` has `values`, one every other round from round 0."""
  os.makedirs(folder)
  settings = {'algorithm': 'fed_avg', 'seed': 0, 'rounds': 2 * len(values) - 2, **settings}
  with open(os.path.join(folder, 'config.json'), 'w') as file:
    json.dump({'settings': settings}, file)
  with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write(f'round,{column},seconds_round\n')
    for t in range(2 * len(values) - 1):
      value = '' if t % 2 else repr(values[t // 2])
      file.write(f'{t},{value},0.5\n')


def test_a_sweep_runs_each_combination_once_and_goes_on_after_failures(
  tmp_path, capsys, monkeypatch
):
  ran = []

  def run(job):
    ran.append(job)
    rate = job.client_learning_rate
    if rate > 1 and len(ran) < 5:
      return 1, None
    _make(job.output_dir, [0.0, rate], client_learning_rate=rate, seed=job.seed)
    with open(f'{job.output_dir}/summary.json', 'w') as file:
      json.dump({'is_complete': True, 'rounds': 2}, file)
    return 0, None

  monkeypatch.setattr(sweep.train_process, 'train', run)
  monkeypatch.setattr(grid.run_folder, 'read_config', lambda *_: None)
  command = [
    'sweep.py',
    f'--output_dir={tmp_path}/s',
    '--grid=client_learning_rate=0.5,2',
    '--grid=seed=0,1',
    '--',
    '--rounds=2',
  ]
  assert sweep.main(command) == 1
  assert len(ran) == 4
  captured = capsys.readouterr()
  assert '0.5000 ± 0.0000' in captured.out
  assert captured.err.count('exit code 1') == 2
  assert sweep.main(command) == 0  # Only the two that failed are run again.
  assert len(ran) == 6
  table = capsys.readouterr().out
  assert '| client_learning_rate=2.0 | 2 |' in table
  with open(tmp_path / 's' / 'sweep.md') as file:
    assert file.read() == table


def test_a_sweep_of_a_task_without_accuracy_has_a_table_and_a_bad_metric_is_reported(
  tmp_path, capsys, monkeypatch
):
  def run(job):
    rate = job.client_learning_rate
    settings = {'task': 'emnist_ae', 'client_learning_rate': rate}
    _make(job.output_dir, [0.5, rate], 'validation_mse', **settings)
    return 0, None

  monkeypatch.setattr(sweep.train_process, 'train', run)
  command = [f'--output_dir={tmp_path}', '--grid=client_learning_rate=0.5,2', '--', '--rounds=2']
  assert sweep.main(['sweep.py', *command]) == 0
  assert '| validation mse, last |' in capsys.readouterr().out
  monkeypatch.setattr(sweep.train_process, 'train', lambda *_: (0, None))
  monkeypatch.setattr(grid.run_folder, 'read_config', lambda *_: None)
  assert sweep.main(['sweep.py', '--metric=f1', *command]) == 2
  error = capsys.readouterr().err
  assert "no values of 'f1'" in error
  assert 'The runs are saved' in error


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['--grid=tau=0.1,0', '--output_dir=x'], '--tau must be'),
    (['--grid=size=1', '--output_dir=x'], '--grid=size=1'),
    (['--grid=tau=', '--output_dir=x'], '--grid=tau='),
    (['--grid=tau=1'], '--output_dir is missing'),
    (['--output_dir=x'], 'at least once'),
    (['--grid=tau=1', '--grid=tau=2', '--output_dir=x'], 'in one --grid only'),
    (['--grid=seed=0,00', '--output_dir=x'], 'x/seed=0 and x/seed=00 are the same run'),
    (['--grid=tau=1', '--output_dir=x', 'more'], "unexpected argument 'more'"),
    (['--grid=tau=1', '--output_dir=x', '--rounds=3'], "train.py's flags go after ' -- '"),
    (['--grid=seed=0,1', '--output_dir=x', '--', '--seed=4'], '--seed is in --grid and after'),
    (['--grid=xla=true', '--output_dir=x', '--', '--noxla'], '--xla is in --grid and after'),
    (['--grid=seed=0', '--output_dir=x', '--', '--output_dir=y'], "belongs before ' -- '"),
  ],
)
def test_a_bad_sweep_is_refused_before_anything_runs(arguments, message, capsys, monkeypatch):
  monkeypatch.setattr(sweep.train_process, 'train', None)
  assert sweep.main(['sweep.py', *arguments]) == 2
  error = capsys.readouterr().err
  assert message in error
  assert error.count('\n') == 1


def test_a_signal_ends_the_sweep_with_its_code(tmp_path, monkeypatch, capsys):
  ran = []
  monkeypatch.setattr(
    sweep.train_process, 'train', lambda job: ran.append(job) or (0, signal.SIGTERM)
  )
  command = ['sweep.py', f'--output_dir={tmp_path}', '--grid=seed=0,1', '--', '--rounds=2']
  assert sweep.main(command) == 128 + signal.SIGTERM
  assert len(ran) == 1
  assert 'the same command goes on' in capsys.readouterr().err


def test_a_dry_run_says_the_commands(tmp_path, capsys):
  command = ['sweep.py', f'--output_dir={tmp_path}', '--dry_run', '--grid=tau=0.1,0.2', '--']
  assert sweep.main([*command, '--task_option=alpha=1', '--rounds=3']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == ['train.py', 'train.py']
  assert {'--task_option=alpha=1', '--rounds=3', '--tau=0.2'} <= {*lines[1].split()}
