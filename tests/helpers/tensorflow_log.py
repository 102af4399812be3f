"""What TensorFlow's Python logger says."""

import contextlib
import logging
from collections.abc import Iterator


class _Lines(logging.Handler):
  def __init__(self, lines: list[str]):
    super().__init__()
    self._lines = lines

  def emit(self, record: logging.LogRecord) -> None:
    self._lines.append(record.getMessage())


@contextlib.contextmanager
def lines() -> Iterator[list[str]]:
  """A context with the list of the lines that are logged in it."""
  logged: list[str] = []
  handler = _Lines(logged)
  logger = logging.getLogger('tensorflow')
  logger.addHandler(handler)
  try:
    yield logged
  finally:
    logger.removeHandler(handler)
