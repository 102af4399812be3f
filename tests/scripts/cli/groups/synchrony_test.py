"""Flags of asynchronous training: what they make, and what they refuse; no TensorFlow."""

import pytest

from scripts.cli import flags, resolve
from tff_adaptive.population import buffered

_GIVEN = ['--synchrony=buffered', '--concurrency=20', '--buffer_size=5']


def _resolved(*arguments):
  return resolve.resolve(flags.parse(['train.py', '--task=digits', *arguments]))


def test_flags_make_a_buffer_and_without_them_rounds_are_synchronous():
  assert _resolved().synchrony.build() is None
  assert _resolved('--synchrony=synchronous').synchrony.build() is None
  plain = _resolved(*_GIVEN, '--speed_sigma=0.5')  # A population over-selects by 1.
  assert plain.synchrony.build() == buffered.Buffered(20)
  assert plain.training.cohort(60) == 5
  hinge = ['--staleness=hinge', '--staleness_option=a=2', '--staleness_option=b=3']
  found = _resolved(*_GIVEN, *hinge, '--max_staleness=0', '--mixing').synchrony.build()
  assert found == buffered.Buffered(20, 'hinge', a=2, b=3, max_staleness=0, mixing=True)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--synchrony=buffered'], 'give --concurrency'),
    (['--synchrony=synchronous', '--concurrency=9'], '--concurrency is for --synchrony=buffered'),
    ([*_GIVEN, '--clients_per_round=5'], '--buffer_size stands in place of --clients_per_round'),
    ([*_GIVEN, '--participation=0.2'], '--buffer_size stands in place of --participation'),
    ([*_GIVEN, '--algorithm=scaffnew'], 'needs all 60 clients in every round, found 5'),
    ([*_GIVEN, '--over_select=1.3'], '--over_select has no meaning'),
    ([*_GIVEN, '--staleness_option=z=1'], "unknown option of the staleness 'z'"),
    ([*_GIVEN, '--aggregator=dp_gaussian', '--target_epsilon=8'], 'does not go with --synchrony'),
  ],
)
def test_what_has_no_meaning_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message) as raised:
    _resolved(*arguments)
  assert '\n' not in str(raised.value)
