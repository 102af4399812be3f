"""Writes and reads metrics.csv, which has one row per round and can be read during the run."""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import errors

FILE = 'metrics.csv'
_FORBIDDEN = frozenset(',\r\n')  # In a column's name.
# Parts of a process's metrics that say where a number was computed, not what it is.
_WRAPPERS = frozenset(
  {'client_work', 'distributor', 'aggregator', 'finalizer', 'updates', 'dp_query_metrics'}
)


def read(path: str) -> list[dict[str, float]]:
  """Returns the rows of a metrics.csv: mappings from column to number, without empty cells.

  A last line without a line break is left out, because it has not been written completely.

  Raises:
    FileNotFoundError: If there is no such file.
    RunFileError: If the file cannot be read, or is not a table of numbers with ascending rounds.
  """
  rows: list[dict[str, float]] = []
  with errors.reading(path):
    with open(path, encoding='utf-8') as file:
      lines = [line[:-1].split(',') for line in file if line.endswith('\n')]
    # A run that was killed before its first row has an empty file.
    columns = lines[0] if lines else ['round']
    are_different = len(set(columns)) == len(columns) and '' not in columns
    if columns[0] != 'round' or not are_different:
      raise ValueError("line 1 is not a header of different names that begins with 'round'")
    for number, cells in enumerate(lines[1:], 2):
      if len(cells) != len(columns):
        raise ValueError(f'line {number} has {len(cells)} cells, the header {len(columns)}')
      try:
        row = {name: _number(cell) for name, cell in zip(columns, cells) if cell}
        before = rows[-1]['round'] if rows else -1
        if type(row['round']) is not int or row['round'] <= before:
          raise ValueError(f'round {row["round"]} is not after the one before')
      except (ValueError, KeyError) as error:
        raise ValueError(f'line {number}: {error}') from None
      rows.append(row)
  return rows


class MetricsLog:
  """The rows of a run's metrics.csv, in memory and, if a path is given, in the file.

  A row is a mapping from column to number. Missing columns are left empty. Numbers are written by
  `repr`, so that reading them gives the same bits. Rows are appended. If a row has a new column,
  the whole file is rewritten atomically.
  """

  def __init__(self, path: str | None, *, kept: Sequence[Mapping[str, float]] = ()):
    """Opens the file.

    Args:
      path: The file; None keeps the rows in memory only.
      kept: The rows of the run before it was resumed, which are written first.

    Raises:
      SaveError: If the file cannot be written.
    """
    self._path = path
    self._rows = [dict(row) for row in kept]
    columns: dict[str, None] = {}  # A set that keeps the order.
    for row in kept:
      columns.update(dict.fromkeys(row))
    self._columns = list(columns)
    self._file: Any = None
    self._size = 0  # The bytes that were written to the file.
    if path is not None:
      self._rewrite(path)

  @property
  def columns(self) -> list[str]:
    """The columns, in the order in which they first appeared."""
    return list(self._columns)

  def rows(self) -> list[dict[str, float]]:
    """Returns the rows, without empty cells."""
    return list(self._rows)

  def append(self, row: Mapping[str, Any]) -> None:
    """Writes a row, a mapping from column to scalar that begins with `round`.

    Raises SaveError if the row cannot be written, or the file was moved or replaced, and ValueError
    for a column whose name cannot be in the header.
    """
    for name in row:
      if not name or not _FORBIDDEN.isdisjoint(name):
        raise ValueError(f'the metric {name!r} must have a name without commas and line breaks.')
    numbers = {}
    for name, value in row.items():
      number = np.asarray(value).item()
      # A bool would be written as True, which no program reads as a number.
      numbers[name] = number if isinstance(number, float) else int(number)
    self._rows.append(numbers)
    new = [name for name in row if name not in self._columns]
    self._columns += new
    if self._path is None:
      return
    if new or not self._is_as_written(self._path):
      self._rewrite(self._path)
      return
    with errors.saving(self._path):
      data = self._line(self._rows[-1]).encode()
      while data:  # A write without a buffer may be partial.
        written = self._file.write(data)
        self._size += written
        data = data[written:]

  def sync(self) -> None:
    """Flushes all rows to the disk. If another program has cut the file, it is written again.

    Raises SaveError if this fails or the file was replaced.
    """
    if self._path is None:
      return
    if not self._is_as_written(self._path):
      self._rewrite(self._path)
    # A write may fail only here, as on a network file system with a full disk.
    with errors.saving(self._path):
      os.fsync(self._file.fileno())

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()

  def _is_as_written(self, path: str) -> bool:
    """Returns whether the file has the size that was written; False if it was cut, say.

    Raises SaveError unless the open file is still the one at the path.
    """
    with errors.saving(path):
      status = os.fstat(self._file.fileno())
      if not os.path.samestat(os.stat(path), status):
        raise FileNotFoundError(errno.ENOENT, 'replaced')
    return status.st_size == self._size

  def _rewrite(self, path: str) -> None:
    self.close()
    lines = [self._line(row) for row in self._rows]
    if self._columns:
      lines.insert(0, ','.join(self._columns) + '\n')
    with errors.saving(path):
      atomic_files.write_text(path, ''.join(lines))
      # Without a buffer, so that a reader sees each row at once and a killed run loses none.
      self._file = open(path, 'ab', buffering=0)  # noqa: SIM115
      self._size = os.fstat(self._file.fileno()).st_size

  def _line(self, row: Mapping[str, float]) -> str:
    cells = [repr(row[name]) if name in row else '' for name in self._columns]
    return ','.join(cells) + '\n'


def flatten(metrics: Any) -> dict[str, Any]:
  """Converts the nested metrics of a federated process to columns of metrics.csv.

  Args:
    metrics: Nested mappings, tuples or lists of scalars (NumPy, TensorFlow or Python).

  Returns:
    Python floats and ints by column. A column's name is the path to the value, joined by '_'. TFF's
    names for parts of a process are left out, unless an earlier column has the shorter name. Values
    that are not scalars have no column.
  """
  flat: dict[str, Any] = {}

  def visit(value: Any, path: tuple[str, ...]) -> None:
    if hasattr(value, '_asdict'):
      value = value._asdict()
    if isinstance(value, (list, tuple)):
      value = dict(enumerate(value))
    if isinstance(value, Mapping):
      for key, child in value.items():
        visit(child, (*path, str(key)))
    elif value is not None:
      array = np.asarray(value)
      if array.shape == () and array.dtype.kind in 'fiub':
        whole = '_'.join(path)
        name = '_'.join(part for part in path if part not in _WRAPPERS) or whole
        if name in flat:  # No value may replace another one.
          name = whole
        flat[name] = array.item()

  visit(metrics, ())
  return flat


def _number(cell: str) -> float:
  try:
    return int(cell)
  except ValueError:
    return float(cell)
