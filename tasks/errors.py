"""`DataError`, which tasks raise if data or options cannot be used, and a check of options."""

from typing import Any

import numpy as np

from tff_adaptive_tasks import preparation

_LONGEST = 1000


class DataError(ValueError):
  """Raised if data are missing, incomplete, or do not have the expected form.

  The message has one line: the file or client, what was found, and what to do. Control characters,
  for example in a name in a file, are escaped, because a terminal would obey them.
  """

  def __init__(self, message: str):
    super().__init__(_printable(message))


class RowError(preparation.RowError, DataError):
  """Raised if a row of data, which need not be a table, cannot be used."""


def _printable(text: str) -> str:
  """Returns a text as one line of limited length, with unprintable characters escaped."""
  if len(text) > _LONGEST:
    text = f'{text[: _LONGEST * 3 // 4]} ... {text[-_LONGEST // 4 :]}'
  if text.isprintable():
    return text
  return ''.join(map(_escaped, text))


def _escaped(character: str) -> str:
  if character.isprintable():
    return character
  return character.encode('unicode_escape').decode()


def check_range(name: str, value: float, low: float, high: float) -> None:
  """Raises DataError if the option `name` has a `value` that is NaN or outside [low, high]."""
  if not low <= value <= high:
    raise DataError(f'{name} is {value}; it must be from {low:,} to {high:,}')


def check_unmasked(values: Any, what: str) -> None:
  """Raises DataError if an array has masked values, which `np.asarray` would take as they are."""
  num_masked = np.ma.count_masked(values) if isinstance(values, np.ma.MaskedArray) else 0
  if num_masked:
    raise DataError(
      f'{what} has masked values ({num_masked:,}): fill them, as with x.filled(0), or leave out '
      'their rows'
    )
