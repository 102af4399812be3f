"""What experiments share: flags that are refused before hours are spent."""

import pytest

from research.experiments import fairness


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--seeds=0,-1'], '--seeds: -1: give whole numbers'),
    (['--seeds='], '--seeds= is empty'),
    (['--data_dir=.'], 'adult needs a folder with adult.npz: give --data_dir'),
    (['--results=/proc/x', '--smoke'], '--results=/proc/x cannot be written to ('),
    (['--tuning_seed=1'], '--tuning_seed=1 is one of --seeds'),
    (['--problems=adultt'], "--problems: unknown problem 'adultt'"),
    (['--methods=FedAvgg'], "--methods: unknown method 'FedAvgg'"),
  ],
)
def test_bad_input_is_one_line_before_training(tmp_path, monkeypatch, capsys, flags, message):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(fairness, 'train', None)  # No training begins.
  assert fairness.main(['fairness.py', *flags]) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'fairness.py: {message}')
  assert error.count('\n') == 1
