"""Runs in processes of their own: each once, a table, and the first signal ends them."""

import json
import os
import signal

from scripts.cli import grid, train_process


def _jobs(folder):
  return grid.jobs(
    str(folder), {'client_learning_rate': ['0.5', '2'], 'seed': ['0', '1']}, {'rounds': 1}
  )


def _finish(settings):
  os.makedirs(settings.output_dir)
  with open(f'{settings.output_dir}/config.json', 'w') as file:
    json.dump({'settings': settings.flat()}, file)
  with open(f'{settings.output_dir}/metrics.csv', 'w') as file:
    file.write(f'round,validation_mse\n0,0.0\n1,{settings.client_learning_rate}\n')
  with open(f'{settings.output_dir}/summary.json', 'w') as file:
    json.dump({'is_complete': True, 'rounds': 1}, file)


def test_each_is_trained_once_and_what_failed_is_tried_again(tmp_path, capsys, monkeypatch):
  ran = []

  def train(job):
    ran.append(job)
    if job.client_learning_rate > 1 and len(ran) < 5:
      return 1, None
    _finish(job)
    return 0, None

  monkeypatch.setattr(train_process, 'train', train)
  jobs = _jobs(tmp_path)
  assert train_process.train_all(jobs, str(tmp_path), ['client_learning_rate']) == 1
  assert capsys.readouterr().err.count('exit code 1') == 2
  assert train_process.train_all(jobs, str(tmp_path), ['client_learning_rate']) == 0
  assert len(ran) == 6
  table = capsys.readouterr().out
  assert '| client_learning_rate=2.0 | 2 |' in table
  assert '| validation mse, last |' in table
  assert (tmp_path / 'sweep.md').read_text() == table
  assert train_process.train_all(jobs, str(tmp_path), metric='f1') == 2
  assert 'The runs are saved' in capsys.readouterr().err


def test_a_signal_ends_all_with_its_code(tmp_path, monkeypatch, capsys):
  ran = []
  monkeypatch.setattr(train_process, 'train', lambda job: ran.append(job) or (0, signal.SIGTERM))
  assert train_process.train_all(_jobs(tmp_path), str(tmp_path)) == 128 + signal.SIGTERM
  assert len(ran) == 1
  assert 'the same command goes on' in capsys.readouterr().err
