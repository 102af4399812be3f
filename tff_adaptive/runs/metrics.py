"""Writes and reads metrics.csv, which has one row a round and can be read during the run."""

import dataclasses
import errno
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import errors

FILE = 'metrics.csv'
# Parts of a process's metrics that say where a number was computed, not what it is.
_WRAPPERS = frozenset(
  {'client_work', 'distributor', 'aggregator', 'finalizer', 'updates', 'dp_query_metrics'}
)


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a run as they are in the file.

  Attributes:
    columns: The names of the columns, `round` first; none if the file has no header yet.
    cells: The cells of each row, as many as there are columns; '' for a missing value.
  """

  columns: Sequence[str]
  cells: Sequence[Sequence[str]]

  @property
  def rounds(self) -> list[int]:
    """The round of each row."""
    return [int(row[0]) for row in self.cells]

  def rows(self) -> list[dict[str, float]]:
    """Returns the rows as numbers, without empty cells."""
    return [{k: float(v) for k, v in zip(self.columns, row) if v} for row in self.cells]


def read(path: str) -> Table:
  """Reads a metrics.csv.

  A last line without a line break is left out, because it is still being written, or was when the
  run was killed.

  Raises:
    FileNotFoundError: If there is no such file.
    RunFileError: If it cannot be read, or is not a table of numbers by round.
  """
  with errors.reading(path):
    with open(path, newline='', encoding='utf-8') as file:
      lines = [line[:-1].split(',') for line in file if line.endswith('\n')]
    columns, cells = (lines[0], lines[1:]) if lines else ([], [])
    if columns and (columns[0] != 'round' or not all(map(str.isprintable, columns))):
      raise ValueError("line 1 is not a header that begins with 'round'")
    if len({*columns, ''}) <= len(columns):
      raise ValueError('line 1 has a column twice, or one without a name')
    for number, row in enumerate(cells, 2):
      if len(row) != len(columns):
        raise ValueError(f'line {number} has {len(row)} cells, the header {len(columns)}')
      if not (row[0].isascii() and row[0].isdigit()):
        raise ValueError(f'line {number} has no round number')
      for name, cell in zip(columns, row):
        try:
          float(cell or 0)
        except ValueError:
          raise ValueError(f'line {number}, {name}: {cell[:40]!r} is not a number') from None
    table = Table(columns, cells)
    for number, (one, other) in enumerate(itertools.pairwise(table.rounds), 3):
      if other <= one:
        raise ValueError(
          f'line {number} is of round {other}, after round {one}: rows twice or mixed'
        )
  return table


class MetricsLog:
  """The rows of a run in a CSV file, or in memory.

  A row is a mapping from column to number. Missing columns are left empty. Floats are written by
  `repr`, so that reading them gives the same bits. Rows are appended. If a row has a new column,
  the whole file is rewritten atomically. Rows in a file are not kept in memory.
  """

  def __init__(self, path: str | None, *, kept: Table | None = None):
    """Opens the file.

    Args:
      path: The file; None keeps the rows in memory only.
      kept: The rows of an earlier part of the run, with which the file begins. None starts a new
        file.

    Raises:
      SaveError: If the file cannot be written.
    """
    self._path = path
    self._columns: list[str] = list(kept.columns) if kept else []
    self._rows: list[dict[str, float]] = []  # Without a file.
    self._file: Any = None
    if path is not None:
      self._rewrite(kept.cells if kept else [])

  @property
  def columns(self) -> list[str]:
    """The columns, in the order in which they first appeared."""
    return list(self._columns)

  def rows(self) -> list[dict[str, float]]:
    """Returns the rows as numbers, without empty cells."""
    return list(self._rows) if self._path is None else self._table().rows()

  def append(self, row: Mapping[str, Any]) -> None:
    """Writes a row; `round` is the first of its columns.

    Raises:
      SaveError: If it cannot be written, or the file is no longer where it was.
    """
    new = [name for name in row if name not in self._columns]
    columns = self._columns + new
    cells = [_text(row[name]) if name in row else '' for name in columns]
    if self._path is None:
      self._rows += Table(columns, [cells]).rows()
    elif new:
      before = [[*line, *[''] * len(new)] for line in self._table().cells]
      self._columns = columns
      self._rewrite([*before, cells])
    else:
      self._check_place()
      with errors.saving(self._path):
        data = _line(cells).encode()
        while data:  # An unbuffered file may take a part at a time.
          data = data[self._file.write(data) :]
    self._columns = columns

  def sync(self) -> None:
    """Flushes all rows to the disk.

    Raises:
      SaveError: If they cannot be written, or the file is no longer where it was.
    """
    if self._file is not None:
      self._check_place()
      with errors.saving(self._path or ''):
        os.fsync(self._file.fileno())

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()
      self._file = None

  def _table(self) -> Table:
    assert self._path is not None
    try:
      return read(self._path)
    except (FileNotFoundError, errors.RunFileError) as error:
      raise errors.SaveError(f'{error} It was whole before: the run cannot go on.') from error

  def _check_place(self) -> None:
    """Raises SaveError unless the open file is still the one at the path."""
    with errors.saving(self._path or ''):
      assert self._path is not None
      if not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
        raise FileNotFoundError(errno.ENOENT, 'replaced')

  def _rewrite(self, cells: Sequence[Sequence[str]]) -> None:
    assert self._path is not None
    self.close()
    lines = [self._columns, *cells] if self._columns else []
    with errors.saving(self._path):
      atomic_files.write_text(self._path, ''.join(map(_line, lines)))
      self._file = open(self._path, 'ab', buffering=0)  # noqa: SIM115


def flatten(metrics: Any) -> dict[str, Any]:
  """Converts a process's nested metrics to columns.

  Args:
    metrics: Nested mappings, tuples or lists of scalars (NumPy, TensorFlow or Python).

  Returns:
    Column -> Python float or int. A column's name is the path to the value, joined by '_', without
    the parts that only name the place in the process. Values that are not scalars have no column.
  """
  flat: dict[str, Any] = {}
  full: dict[str, Any] = {}

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
        full['_'.join(path)] = array.item()
        name = '_'.join(part for part in path if part not in _WRAPPERS) or '_'.join(path)
        flat[name] = array.item()

  visit(metrics, ())
  return flat if len(flat) == len(full) else full


def _text(value: Any) -> str:
  value = np.asarray(value).item()
  return repr(float(value)) if isinstance(value, float) else str(int(value))


def _line(cells: Sequence[str]) -> str:
  return ','.join(cells) + '\n'
