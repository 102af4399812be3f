"""Reads CSV files that describe clients: traces of their availability, and profiles."""

import contextlib
import csv
import errno
import math
import os
import unicodedata
from collections.abc import Iterator, Sequence

from tff_adaptive.population import speed

TRACE_COLUMNS = ('client', 'from', 'until')
PROFILE_COLUMNS = ('probability', 'phase', *speed.COLUMNS)


def read_trace(path: str) -> dict[str, list[tuple[float, float]]]:
  """Returns the intervals of availability in a file, by client id, as `Trace` takes them.

  Args:
    path: A CSV file with the columns client, from and until, in virtual seconds. A client may have
      any number of lines. Blanks around cells are ignored. Ids are composed
      (Unicode's NFC).

  Raises:
    ValueError: If the file cannot be read; the error names the line. `Trace` checks the times.
  """
  intervals: dict[str, list[tuple[float, float]]] = {}
  for client, row in _rows(path, TRACE_COLUMNS, ()):
    intervals.setdefault(client, []).append((row['from'], row['until']))
  return intervals


def read_profiles(path: str) -> dict[str, dict[str, float]]:
  """Returns measured properties of clients in a file: for each column, values by client id.

  Args:
    path: A CSV file with the column client and one or more of probability, phase, seconds_per_step,
      downlink and uplink (10^6 bytes a second). Each client has one line. Blanks around cells are
      ignored. Ids are composed (Unicode's NFC).

  Raises:
    ValueError: If the file cannot be read, with the line. `Speed` and `Availability` check values.
  """
  profiles: dict[str, dict[str, float]] = {}
  for client, row in _rows(path, ('client',), PROFILE_COLUMNS):
    for name, value in row.items():
      values = profiles.setdefault(name, {})
      if client in values:
        raise ValueError(f'{path}: client {client!r} has two lines: give one line a client.')
      values[client] = value
  return profiles


def _rows(
  path: str, needed: Sequence[str], optional: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
  """Yields each client and its numbers by column. Raises ValueError if the file is malformed."""
  lines = _lines(path)
  (_, columns), *rows = lines or [(0, [])]
  has_known_columns = {*needed} <= {*columns} <= {*needed, *optional}
  has_repeated_columns = len({*columns}) < len(columns)
  lacks_optional = bool(optional) and len(columns) == len(needed)
  if not has_known_columns or has_repeated_columns or lacks_optional:
    also = ''
    if optional:
      also = f' and one or more of {", ".join(optional)}'
    raise ValueError(
      f'{path} has the columns [{", ".join(map(repr, columns))}]; give {", ".join(needed)}{also}.'
    )
  if not rows:
    raise ValueError(f'{path} has no clients: give a line for each below the heading.')
  for line, row in rows:
    if len(row) != len(columns):
      raise ValueError(
        f'{path}, line {line}: give {len(columns)} values, for {", ".join(columns)}.'
      )
    cells = dict(zip(columns, row))
    # As tasks read names: two that look alike are one.
    client = unicodedata.normalize('NFC', cells.pop('client'))
    yield client, {n: _number(path, line, n, text) for n, text in cells.items()}


def _lines(path: str) -> list[tuple[int, list[str]]]:
  """Returns the number and the cells of each line that is not empty."""
  lines = []
  try:
    if os.path.exists(path) and not os.path.isfile(path):  # Opening a pipe would wait.
      raise OSError(errno.EINVAL, 'it is no file')
    # Spreadsheets write a byte order mark before UTF-8, which this encoding skips.
    with open(path, encoding='utf-8-sig', newline='') as file:
      reader = csv.reader(file, strict=True)
      for row in reader:
        if row:
          lines.append((reader.line_num, [cell.strip() for cell in row]))
  except OSError as error:
    raise ValueError(f'{path} cannot be read ({error.strerror}).') from None
  except (UnicodeDecodeError, csv.Error) as error:
    raise ValueError(f'{path} cannot be read ({error}).') from None
  return lines


def _number(path: str, line: int, name: str, text: str) -> float:
  value = math.nan
  if '_' not in text:  # Python takes 1_0 for ten.
    with contextlib.suppress(ValueError):
      value = float(text)
  if not math.isfinite(value):
    raise ValueError(f'{path}, line {line}: {name} is {text!r}; give a finite number.')
  return value
