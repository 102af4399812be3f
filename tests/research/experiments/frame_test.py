"""What experiments share: flags that are refused before hours are spent, and training."""

import pytest

from research.experiments import composition, frame, real_clients
from scripts.cli import search_space, trainers, worker
from tests.helpers import sweep_pool

_DIGITS = '--tasks=digits'


@pytest.mark.parametrize(
  'experiment, flags, message',
  [
    (real_clients, ['--seeds=0,-1'], '--seeds=-1: give whole numbers'),
    (real_clients, ['--seeds='], '--seeds= is empty'),
    (composition, ['--data_dir=.'], 'mnist needs a folder with mnist.npz or mnist_digits'),
    (real_clients, [_DIGITS, '--results=/proc/x'], '--results=/proc/x cannot be written to ('),
    (composition, ['--alpha=0'], '--alpha=0.0: give a number above 0'),
    (composition, ['--tuning_seed=1'], '--tuning_seed=1 is one of --seeds'),
    (real_clients, ['--scenarios=dropuot'], "--scenarios: unknown scenario 'dropuot'"),
    (real_clients, ['--tasks=emnist'], 'emnist needs a folder with emnist_all.sqlite'),
  ],
)
def test_bad_input_is_one_line_before_training(
  tmp_path, monkeypatch, capsys, experiment, flags, message
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(frame, 'train_all', None)
  name = f'{experiment.__name__.rpartition(".")[2]}.py'
  assert experiment.main([name, *flags]) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'{name}: {message}')
  assert error.count('\n') == 1


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
  assert frame.train_all(groups, ['client_learning_rate']) == 1
  assert len(hosts.ran()) == 8  # What diverges does not end the others.
  captured = capsys.readouterr()
  assert captured.err.count('client_learning_rate=2,seed=1: diverged: the loss is nan.\n') == 2
  assert captured.out.count('diverged: the loss is nan.') == 4  # Below the tables.
  down.clear()
  assert frame.train_all(groups, ['client_learning_rate']) == 0
  assert len(hosts.ran()) == 12
  for folder in groups:
    assert '| client_learning_rate=2.0 | 2 |' in (tmp_path / folder / 'sweep.md').read_text()
  assert capsys.readouterr().err.count('complete already') == 4


def test_without_a_table_the_exit_code_says_so(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(trainers, 'LocalHost', sweep_pool.Hosts(lambda s: 0.5))
  (tmp_path / 'a' / 'sweep.md').mkdir(parents=True)
  assert frame.train_all(_groups(tmp_path), ['client_learning_rate']) == 2
  captured = capsys.readouterr()
  assert captured.err.count('The runs are saved, but there is no table') == 1
  assert (tmp_path / 'b' / 'sweep.md').read_text() in captured.out
