"""A message is written as far as that is possible."""

import io

import pytest

from tff_adaptive._utils import streams


def test_a_message_is_written_as_far_as_that_is_possible():
  ascii_only = io.TextIOWrapper(io.BytesIO(), encoding='ascii')
  streams.write(ascii_only, 'é\n')
  assert ascii_only.buffer.getvalue() == b'\\xe9\n'
  closed = io.StringIO()
  closed.close()
  streams.write(closed, 'x')
  streams.write(None, 'x')
  with open('/dev/full', 'w') as full:
    streams.write(full, 'x')
    with pytest.raises(OSError, match='No space'):  # The text is still in Python's buffer.
      full.close()
