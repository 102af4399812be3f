"""Suggests the names most like a mistyped one, for error messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> list[str]:
  """Returns at most three of `names` that resemble `name`, the most similar first."""
  plain = {_plain(valid): valid for valid in names}
  return [plain[match] for match in difflib.get_close_matches(_plain(name), plain)]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
  """Returns a one-line message that `name`, of a `kind` such as 'algorithm', is unknown."""
  names = list(names)
  if not names:
    return f'unknown {kind} {name!r}. There are none.'
  close = nearest(name, names)
  hint = ''
  if close:
    hint = f' Did you mean {" or ".join(close)}?'
  return f'unknown {kind} {name!r}.{hint} Choose one of: {", ".join(names)}.'


def _plain(name: str) -> str:
  """Returns a name in lower case, without '-', '_' and spaces, for comparison."""
  return ''.join(letter for letter in name.lower() if letter not in '-_ ')
