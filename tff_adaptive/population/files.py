"""Reads CSV files that describe clients: traces of their availability, and profiles."""

import csv
import errno
import math
import os
from collections.abc import Iterator, Sequence

from tff_adaptive.population import speed

TRACE_COLUMNS = ('client', 'from', 'until')
PROFILE_COLUMNS = ('probability', 'phase', *speed.COLUMNS)


def read_trace(path: str) -> dict[str, list[tuple[float, float]]]:
  """Returns the intervals of availability in a file, by client id, as `Trace` takes them.

  Args:
    path: A CSV file with the columns client, from and until, in virtual seconds. A client may have
      any number of lines. Blanks around cells are ignored.

  Raises:
    ValueError: If the file cannot be read; the error names the line. `Trace` checks the times.
  """
  found: dict[str, list[tuple[float, float]]] = {}
  for client, row in _rows(path, TRACE_COLUMNS, ()):
    found.setdefault(client, []).append((row['from'], row['until']))
  return found


def read_profiles(path: str) -> dict[str, dict[str, float]]:
  """Returns measured properties of clients in a file: for each column, values by client id.

  Args:
    path: A CSV file with the column client and one or more of probability, phase, seconds_per_step,
      downlink and uplink (10^6 bytes a second). Each client has one line. Blanks around cells are
      ignored.

  Raises:
    ValueError: If the file cannot be read, with the line. `Speed` and `Availability` check values.
  """
  found: dict[str, dict[str, float]] = {}
  for client, row in _rows(path, ('client',), PROFILE_COLUMNS):
    for name, value in row.items():
      if client in found.setdefault(name, {}):
        raise ValueError(f'{path}: client {client!r} has two lines: give one line a client.')
      found[name][client] = value
  return found


def _rows(
  path: str, needed: Sequence[str], optional: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
  """Yields each client and its numbers by column. Raises ValueError if the file is malformed."""
  try:
    if os.path.exists(path) and not os.path.isfile(path):  # Opening a pipe would wait.
      raise OSError(errno.EINVAL, 'it is no file')
    with open(path, encoding='utf-8-sig', newline='') as file:
      reader = csv.reader(file, strict=True)
      lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    reason = error.strerror if isinstance(error, OSError) else error
    raise ValueError(f'{path} cannot be read ({reason}).') from None
  (_, columns), *rows = lines or [(0, [])]
  fits = {*needed} <= {*columns} <= {*needed, *optional} and len({*columns}) == len(columns)
  if not fits or (optional and len(columns) == len(needed)):
    also = f' and one or more of {", ".join(optional)}' if optional else ''
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
    yield cells.pop('client'), {n: _number(path, line, n, text) for n, text in cells.items()}


def _number(path: str, line: int, name: str, text: str) -> float:
  try:
    value = math.nan if '_' in text else float(text)  # Python takes 1_0 for ten.
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    raise ValueError(f'{path}, line {line}: {name} is {text!r}; give a finite number.')
  return value
