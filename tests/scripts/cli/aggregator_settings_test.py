"""Flags of aggregation: defaults that change nothing, refusals in one line; no TensorFlow."""

import pytest

from scripts.cli import flags, resolve as resolve_lib

NOISE = '--aggregator_option=noise_multiplier=1'


def resolve(*arguments):
  return resolve_lib.resolve(flags.parse(['train.py', *arguments]))


def test_without_a_flag_it_is_the_mean_and_nothing_else_changes():
  found = resolve()
  assert (found.aggregator, found.aggregator_options) == ('mean', {})
  assert (found.target_epsilon, found.delta) == (None, None)
  assert found.client_weighting == 'examples'
  assert resolve('--aggregator=robust').client_weighting == 'examples'


def test_noise_has_clients_count_the_same_unless_that_is_asked_for_otherwise():
  found = resolve('--aggregator=dp_gaussian', NOISE)
  assert found.client_weighting == 'uniform'
  assert found.aggregator_options['noise_multiplier'] == 1.0
  assert found.aggregator_options['clip'] == 0.1


@pytest.mark.parametrize(
  'arguments, error',
  [
    (['--aggregator=meen'], r"--aggregator: unknown aggregator 'meen'\. Did you mean mean\?"),
    (['--aggregator_option=norm=1'], "--aggregator_option: unknown hyperparameter of mean 'norm'"),
    (['--aggregator=clipping', '--aggregator_option=norm'], 'write it as NAME=VALUE'),
    (['--aggregator=clipping', '--aggregator_option=norm=-1'], 'norm must be finite and above 0'),
    (['--aggregator=clipping', '--algorithm=scaffold'], '--aggregator: clipping does not clip'),
    (['--aggregator=dp_tree', NOISE, '--client_weighting=examples'], 'weighs no clients'),
    (['--aggregator=secure', '--engine=native'], 'does not go with --engine=native: .* leave out'),
    (['--aggregator=dp_tree'], 'wants either --target_epsilon or'),
    (['--aggregator=dp_tree', NOISE, '--target_epsilon=3'], 'give one of them'),
    (['--aggregator=dp_tree', '--target_epsilon=0'], '--target_epsilon must be finite and above 0'),
    (['--aggregator=dp_tree', NOISE, '--delta=0'], '--delta must be above 0'),
    (['--aggregator=dp_tree', NOISE, '--delta=1'], r'--delta must be in \[0, 1\)'),
    (['--aggregator=robust', '--delta=1e-5'], '--delta is for --aggregator dp_gaussian, dp_tree'),
    (['--target_epsilon=3'], '--target_epsilon is for --aggregator dp_gaussian, dp_tree'),
  ],
)
def test_what_does_not_go_together_is_refused_in_one_line(arguments, error):
  with pytest.raises(ValueError, match=error) as caught:
    resolve(*arguments)
  assert '\n' not in str(caught.value)
