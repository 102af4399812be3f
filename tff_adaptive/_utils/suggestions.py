"""The names most like a mistyped one, for error messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> list[str]:
  """Returns the names most like a mistyped one.

  Args:
    name: What was typed. Case, and '-' for '_', do not matter.
    names: The valid names.

  Returns:
    At most three of `names`, the most alike first; empty where none is alike.
  """
  plain = {_plain(valid): valid for valid in names}
  return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3)]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
  """Returns the one-line error for a name that is not among the valid ones.

  Args:
    kind: What is named, e.g. 'algorithm'.
    name: What was typed.
    names: The valid names; there may be none.

  Returns:
    A sentence with the value, the nearest names if there are any, and all the valid names.
  """
  names = list(names)
  if not names:
    return f'unknown {kind} {name!r}. There are none.'
  close = nearest(name, names)
  hint = f' Did you mean {" or ".join(close)}?' if close else ''
  return f'unknown {kind} {name!r}.{hint} Choose one of: {", ".join(names)}.'


def _plain(name: str) -> str:
  """Returns a name as it is compared: without case, '-', '_' and spaces."""
  return ''.join(letter for letter in name.lower() if letter not in '-_ ')
