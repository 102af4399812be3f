"""Given runs: each is trained once, with a table a group; what failed is tried again."""

from research.experiments import shared_runs
from scripts.cli import search_space, trainers, worker
from tests.helpers import sweep_pool


def _groups(folder):
  axes = {'client_learning_rate': ['0.5', '2'], 'seed': ['0', '1']}
  space = search_space.Space(axes, {'rounds': 1})
  return {f'{folder}/{name}': space.grid(f'{folder}/{name}') for name in 'ab'}


def test_each_is_trained_once_and_what_failed_is_tried_again(tmp_path, capsys, monkeypatch):
  down = {2.0}

  def result(s):
    if s.rates.client_learning_rate in down:
      return worker.Answer('diverged', 'the loss is nan.')
    return s.rates.client_learning_rate

  monkeypatch.setattr(trainers, 'LocalHost', hosts := sweep_pool.Hosts(result))
  groups = _groups(tmp_path)
  assert shared_runs.train_all(groups, ['client_learning_rate'], jobs=2) == 1
  assert len(hosts.ran()) == 8  # What diverges does not end the others.
  captured = capsys.readouterr()
  assert captured.err.count('client_learning_rate=2,seed=1: diverged: the loss is nan.\n') == 2
  assert captured.out.count('diverged: the loss is nan.') == 4  # Below the tables.
  down.clear()
  assert shared_runs.train_all(groups, ['client_learning_rate'], jobs=2) == 0
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
