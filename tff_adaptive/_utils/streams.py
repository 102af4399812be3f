"""Writes messages to standard output and standard error, which may be closed, full or gone."""

import contextlib
from typing import Any


def write(stream: Any, text: str) -> None:
  """Writes text to a text stream and flushes it. Text that cannot be written is lost.

  Args:
    stream: The stream; None for one that does not exist. Letters that its encoding lacks are
      written as escapes.
    text: The text.
  """
  if stream is None:
    return
  with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed.
    try:
      stream.write(text)
    except UnicodeEncodeError:
      encoding = getattr(stream, 'encoding', None) or 'ascii'
      stream.write(text.encode(encoding, 'backslashreplace').decode(encoding))
    stream.flush()
