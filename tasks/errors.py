"""The error that every task raises for data it cannot use, and the check of an option's range."""

_LONGEST = 1000


class DataError(ValueError):
  """Data are missing, incomplete or not of the expected form.

  The message is one line: which file or client, what was found, what to do about it. Control
  characters, such as those of a name in a file, are escaped, because a terminal would obey them.
  """

  def __init__(self, message: str):
    super().__init__(_printable(message))


def _printable(text: str) -> str:
  """Text of one line and bounded length in which every character is seen."""
  if len(text) > _LONGEST:
    text = f'{text[: _LONGEST * 3 // 4]} ... {text[-_LONGEST // 4 :]}'
  if text.isprintable():
    return text
  return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def check_range(name: str, value: float, low: float, high: float) -> None:
  """DataError if an option is outside [low, high], as NaN is."""
  if not low <= value <= high:
    raise DataError(f'{name} is {value}; it must be from {low:,} to {high:,}')
