"""Flags of asynchronous training: what they make; no TensorFlow."""

from tests.helpers import settings
from tff_adaptive.asynchrony import Buffered

_GIVEN = ['--synchrony=buffered', '--concurrency=20', '--buffer_size=5']


def test_flags_make_a_buffer_and_without_them_rounds_are_synchronous():
  assert settings.of().synchrony.build() is None
  assert settings.of('--synchrony=synchronous').synchrony.build() is None
  plain = settings.of(*_GIVEN, '--speed_sigma=0.5')  # A population over-selects by 1.
  assert plain.synchrony.build() == Buffered(20)
  assert plain.training.cohort(60) == 5
  hinge = ['--staleness=hinge', '--staleness_option=a=2', '--staleness_option=b=3']
  asynchrony = settings.of(*_GIVEN, *hinge, '--max_staleness=0', '--mixing').synchrony.build()
  assert asynchrony == Buffered(20, 'hinge', a=2, b=3, max_staleness=0, mixing=True)
