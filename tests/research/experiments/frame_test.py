"""What experiments share: flags that are refused before hours are spent."""

import pytest

from research import which_optimizer
from scripts.cli import search


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--seeds=0,-1'], '--seeds: -1: give whole numbers'),
    (['--seeds='], '--seeds= is empty'),
    (['--problems=mnist', '--data_dir=.'], 'mnist needs a folder with mnist.npz or mnist_digits'),
    (['--results=/proc/x'], '--results=/proc/x cannot be written to ('),
    (['--tuning_seed=1'], '--tuning_seed=1 is one of --seeds'),
    (['--methods=fed_avgg'], "--methods: unknown method 'fed_avgg'"),
  ],
)
def test_bad_input_is_one_line_before_training(tmp_path, monkeypatch, capsys, flags, message):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(search, 'search', None)  # No search begins.
  assert which_optimizer.main(['which_optimizer.py', '--problems=digits', *flags]) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'which_optimizer.py: {message}')
  assert error.count('\n') == 1
