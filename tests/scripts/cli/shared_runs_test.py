"""Runs in a shared process: each once, a table a group, and the first signal ends them."""

import json
import os
import signal

import pytest

from scripts.cli import grid, shared_runs, worker


def _groups(folder):
  axes = {'client_learning_rate': ['0.5', '2'], 'seed': ['0', '1']}
  return {f'{folder}/{name}': grid.jobs(f'{folder}/{name}', axes, {'rounds': 1}) for name in 'ab'}


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

  def train(pool, folder, run):
    ran.append((folder, run))
    if run.client_learning_rate > 1 and len(ran) < 9:
      return worker.Answer('diverged', 'the loss is nan.')
    _finish(run)
    return worker.Answer('done')

  monkeypatch.setattr(shared_runs, '_train', train)
  groups = _groups(tmp_path)
  assert shared_runs.train_all(groups, ['client_learning_rate']) == 1
  assert len(ran) == 8  # What diverges does not end the others.
  captured = capsys.readouterr()
  assert captured.err.count('client_learning_rate=2,seed=1: diverged: the loss is nan.\n') == 2
  assert captured.out.count('diverged: the loss is nan.') == 4  # Below the tables.
  assert shared_runs.train_all(groups, ['client_learning_rate']) == 0
  assert len(ran) == 12
  for folder in groups:
    table = (tmp_path / folder / 'sweep.md').read_text()
    assert '| client_learning_rate=2.0 | 2 |' in table
  assert capsys.readouterr().err.count('complete already') == 4


def test_without_a_table_the_exit_code_says_so(tmp_path, capsys, monkeypatch):
  def train(pool, folder, run):
    _finish(run)
    return worker.Answer('done')

  monkeypatch.setattr(shared_runs, '_train', train)
  (tmp_path / 'a' / 'sweep.md').mkdir(parents=True)
  assert shared_runs.train_all(_groups(tmp_path), ['client_learning_rate']) == 2
  captured = capsys.readouterr()
  assert captured.err.count('The runs are saved, but there is no table') == 1
  assert (tmp_path / 'b' / 'sweep.md').read_text() in captured.out


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_with_its_code(tmp_path, monkeypatch, capsys, number):
  ran = []

  def train(pool, folder, run):
    ran.append(run)
    signal.raise_signal(number)
    return worker.Answer('stopped')

  monkeypatch.setattr(shared_runs, '_train', train)
  before = signal.getsignal(number)
  assert shared_runs.train_all(_groups(tmp_path), ['client_learning_rate']) == 128 + number
  assert len(ran) == 1
  assert 'the same command goes on' in capsys.readouterr().err
  assert signal.getsignal(number) is before


def test_runs_share_a_process_and_have_a_log_each(tmp_path, monkeypatch):
  given, keys = [], []

  class Pool:
    def begin(self, ticket, job, key):
      given.append(job)
      keys.append(key)

    def wait(self, seconds):
      return [(None, worker.Answer('done'))] if len(given) % 2 else []

  runs = [run for runs in _groups(tmp_path).values() for run in runs]
  assert shared_runs._train(Pool(), str(tmp_path), runs[0]) == worker.Answer('done')
  given.append(None)
  monkeypatch.setattr(Pool, 'wait', lambda self, seconds: [(None, worker.Answer('failed', 'x'))])
  assert shared_runs._train(Pool(), str(tmp_path), runs[1]).kind == 'failed'
  assert keys[0] == keys[1] is not None
  assert f'--output_dir={runs[0].output_dir}' in given[0].flags
  assert given[0].log == f'{tmp_path}/logs/{os.path.basename(runs[0].output_dir)}.log'
