"""What a run's failures become: one line, and the exit code that says whether it can go on."""

import pytest

from scripts.cli import command, flags, resolve, run
from tff_adaptive import execution, training


def test_lost_workers_are_a_failure_after_which_the_same_command_goes_on(tmp_path, monkeypatch):
  def train(**unused_arguments):
    raise execution.WorkersLost('Round 7: no worker is left')

  monkeypatch.setattr(run, '_prepare', lambda *arguments: {})
  monkeypatch.setattr(training, 'train', train)
  given = flags.parse(['train.py', '--task=digits', f'--output_dir={tmp_path}/run'])
  with pytest.raises(command.FailureError, match='no worker is left'):
    run.run(resolve.resolve(given))


def test_a_failure_is_exit_code_1():
  @command.entry('train.py', 'interrupted')
  def main(arguments):
    raise command.FailureError('no worker is left')

  assert main(['train.py']) == 1
