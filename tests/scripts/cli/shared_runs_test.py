"""Given runs: each is trained once, with a table a group; what failed is tried again."""

import os
import signal
import time

import pytest

from scripts.cli import grid, shared_runs, trainers, worker
from tests.helpers import sweep_pool


def _groups(folder):
  axes = {'client_learning_rate': ['0.5', '2'], 'seed': ['0', '1']}
  return {f'{folder}/{name}': grid.jobs(f'{folder}/{name}', axes, {'rounds': 1}) for name in 'ab'}


@pytest.mark.parametrize('jobs', [1, 2])
def test_each_is_trained_once_and_what_failed_is_tried_again(tmp_path, capsys, monkeypatch, jobs):
  down = {2.0}

  def result(s):
    if s.rates.client_learning_rate in down:
      return worker.Answer('diverged', 'the loss is nan.')
    return s.rates.client_learning_rate

  monkeypatch.setattr(trainers, 'LocalHost', hosts := sweep_pool.Hosts(result))
  groups = _groups(tmp_path)
  assert shared_runs.train_all(groups, ['client_learning_rate'], jobs=jobs) == 1
  assert len(hosts.ran()) == 8  # What diverges does not end the others.
  captured = capsys.readouterr()
  assert captured.err.count('client_learning_rate=2,seed=1: diverged: the loss is nan.\n') == 2
  assert captured.out.count('diverged: the loss is nan.') == 4  # Below the tables.
  down.clear()
  assert shared_runs.train_all(groups, ['client_learning_rate'], jobs=jobs) == 0
  assert len(hosts.ran()) == 12
  for folder in groups:
    assert '| client_learning_rate=2.0 | 2 |' in (tmp_path / folder / 'sweep.md').read_text()
  assert capsys.readouterr().err.count('complete already') == 4


def test_without_a_table_the_exit_code_says_so(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(trainers, 'LocalHost', sweep_pool.Hosts(lambda s: 0.5))
  (tmp_path / 'a' / 'sweep.md').mkdir(parents=True)
  assert shared_runs.train_all(_groups(tmp_path), ['client_learning_rate']) == 2
  captured = capsys.readouterr()
  assert captured.err.count('The runs are saved, but there is no table') == 1
  assert (tmp_path / 'b' / 'sweep.md').read_text() in captured.out


def test_a_signal_ends_all_with_its_code(tmp_path, monkeypatch, capsys):
  def result(s):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # A run takes longer to end.
    return worker.Answer('stopped')

  monkeypatch.setattr(trainers, 'LocalHost', hosts := sweep_pool.Hosts(result))
  assert shared_runs.train_all(_groups(tmp_path)) == 128 + signal.SIGTERM
  assert len(hosts.jobs) == 1
  assert 'the same command goes on' in capsys.readouterr().err
