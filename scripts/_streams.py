"""Makes standard output and standard error of a command usable, whatever they are.

What a command does must not depend on whether somebody can read its messages. A pipe may have lost
its reader (`| head -1`), a disk may be full, a daemon may have no streams, an encoding may lack a
letter. Only the standard library is imported here, because a command begins with this.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _LenientFile(io.FileIO):
  """An output file whose errors end nothing; `error` is the first of them."""

  error: OSError | None = None

  def write(self, data: Any, /) -> int:
    try:
      return super().write(data)
    except OSError as error:
      if self.error is None:
        self.error = error
      # As if all had been written, so that the buffer above does not try again.
      return len(memoryview(data).cast('B'))


def make_lenient() -> None:
  """Makes standard output and error of this process lenient: writing to them raises no error.

  Streams that are closed become /dev/null, so that no other file gets their descriptors, to which
  native code may write. Streams that another program has replaced stay as they are.
  """
  # Rising, because a new descriptor is the lowest that is free.
  for number in (0, 1, 2):
    try:
      os.fstat(number)
    except OSError:
      _open_null(number)
  if sys.stdin is None:
    sys.stdin = open(0, encoding='utf-8', closefd=False)  # noqa: SIM115
  sys.stdout = _lenient(sys.stdout, 1)
  sys.stderr = _lenient(sys.stderr, 2)


def output_error() -> OSError | None:
  """Returns why standard output lost text; None if it did not, or if its reader went away."""
  raw = getattr(getattr(sys.stdout, 'buffer', None), 'raw', None)
  if not isinstance(raw, _LenientFile):
    return None
  # What is still in the buffer has not failed yet.
  sys.stdout.flush()
  if isinstance(raw.error, BrokenPipeError):
    return None
  return raw.error


def _open_null(number: int) -> None:
  descriptor = os.open(os.devnull, os.O_RDWR)
  if descriptor != number:
    os.dup2(descriptor, number)
    os.close(descriptor)


def _lenient(stream: Any, number: int) -> Any:
  """Returns a lenient stream for a descriptor in place of `stream`, which is Python's own."""
  if stream is not None and not _is_pythons(stream, number):
    return stream
  file = io.BufferedWriter(_LenientFile(number, 'w', closefd=False))
  return io.TextIOWrapper(
    file,
    encoding=getattr(stream, 'encoding', None) or 'utf-8',
    errors='backslashreplace',
    line_buffering=number == 2 or getattr(stream, 'line_buffering', False),
    write_through=getattr(stream, 'write_through', False),
  )


def _is_pythons(stream: Any, number: int) -> bool:
  try:
    return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
  except (OSError, ValueError):
    return False
