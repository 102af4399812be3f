"""Flags of asynchronous training: what they make; no TensorFlow."""

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
