"""Flags of held-out clients and evaluation by client; no TensorFlow."""

import pytest

from scripts.cli import flags, records, resolve as resolve_lib

EVERY = '--rounds_per_client_evaluation=5'


def resolve(*arguments):
  return resolve_lib.resolve(flags.parse(['train.py', *arguments]))


def test_without_a_flag_nothing_is_held_out_and_nobody_is_evaluated():
  found = resolve()
  assert (found.heldout_clients, found.heldout_examples) == (0.0, 0.0)
  assert found.rounds_per_client_evaluation is None


@pytest.mark.parametrize(
  'arguments, error',
  [
    (['--heldout_clients=1'], r'--heldout_clients must be in \[0, 1\), found 1'),
    (['--heldout_examples=-0.1'], r'--heldout_examples must be in \[0, 1\)'),
    (['--rounds_per_client_evaluation=0'], 'must be at least 1, found 0: give 1 or more'),
    (['--client_evaluation_clients=10'], 'is for --rounds_per_client_evaluation: give it too'),
    (['--personalization_epochs=1'], 'is for --rounds_per_client_evaluation: give it too'),
    ([EVERY, '--personalization_epochs=1'], 'wants examples that fine-tuning has not seen'),
  ],
)
def test_what_does_not_go_together_is_refused_in_one_line(arguments, error):
  with pytest.raises(ValueError, match=error) as caught:
    resolve(*arguments)
  assert '\n' not in str(caught.value)


def test_a_resumed_run_may_look_more_often_but_not_hold_out_others():
  before = {'settings': resolve().flat(), 'files': {}}
  assert records.of(resolve(EVERY)).refused_changes(before) == []
  (refused,) = records.of(resolve('--heldout_clients=0.1')).refused_changes(before)
  assert '--heldout_clients was 0.0 and is now 0.1' in refused
