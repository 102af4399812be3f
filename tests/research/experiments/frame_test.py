"""What experiments share: bad flags are refused before hours are spent on runs."""

import pytest

from research.experiments import composition, real_clients, shared_runs

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
  monkeypatch.setattr(shared_runs, 'train_all', None)
  name = f'{experiment.__name__.rpartition(".")[2]}.py'
  assert experiment.main([name, *flags]) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'{name}: {message}')
  assert error.count('\n') == 1
