"""The names most like a mistyped one, for error messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> list[str]:
  """At most three of the names, those most like a mistyped one first, whatever their case."""
  plain = {_plain(valid): valid for valid in names}
  return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3)]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
  """The one-line error for the name of an algorithm, say, that is not among the valid ones."""
  names = list(names)
  if not names:
    return f'unknown {kind} {name!r}. There are none.'
  close = nearest(name, names)
  hint = f' Did you mean {" or ".join(close)}?' if close else ''
  return f'unknown {kind} {name!r}.{hint} Choose one of: {", ".join(names)}.'


def _plain(name: str) -> str:
  """Returns a name as it is compared: without case, '-', '_' and spaces."""
  return ''.join(letter for letter in name.lower() if letter not in '-_ ')
