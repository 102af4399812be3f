"""metrics.csv: one row a round, readable while the run goes on."""

import csv
import os
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from tff_adaptive import files

# Parts of a process's metrics that say where a number was computed, not what it is.
_WRAPPERS = frozenset({'client_work', 'distributor', 'aggregator', 'finalizer', 'updates'})


class MetricsLog:
  """The rows of a run, in memory and in a CSV file.

  A row is a mapping from column to number; a column not given is left empty. Floats are
  written by `repr`, so that reading them gives the same bits. Rows are appended as they come;
  the file is written anew, atomically, when a row brings a new column.
  """

  def __init__(self, path: Optional[str], *, last_round: Optional[int] = None):
    """Opens the file.

    Args:
      path: The file; None keeps the rows in memory only.
      last_round: Rows up to this round are kept, later ones dropped; None starts anew.

    Raises:
      ValueError: If a row up to `last_round` is missing.
    """
    self._path = path
    self._columns: list[str] = []
    self._rows: list[dict[str, str]] = []
    self._file = None
    if path is None:
      return
    if last_round is not None:
      self._read(last_round)
    self._rewrite()

  @property
  def columns(self) -> list[str]:
    """The columns, in the order in which they first appeared."""
    return list(self._columns)

  def rows(self) -> list[dict[str, float]]:
    """Returns the rows as numbers, without their empty cells."""
    return [{k: float(v) for k, v in row.items() if v != ''} for row in self._rows]

  def append(self, row: Mapping[str, Any]) -> None:
    """Adds a row, `round` among its columns, and writes it."""
    text = {name: _text(value) for name, value in row.items()}
    new = [name for name in text if name not in self._columns]
    self._columns += new
    self._rows.append(text)
    if self._path is None:
      return
    if new:
      self._rewrite()
    else:
      self._file.write(self._line(text))
      self._file.flush()

  def sync(self) -> None:
    """Returns once all rows are on the disk."""
    if self._file is not None:
      os.fsync(self._file.fileno())

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()
      self._file = None

  def _line(self, row: Mapping[str, str]) -> str:
    return ','.join(row.get(name, '') for name in self._columns) + '\n'

  def _read(self, last_round: int) -> None:
    if os.path.exists(self._path):
      with open(self._path, newline='', encoding='utf-8') as file:
        # A last line without its end was being written when the process ended.
        lines = [line for line in file if line.endswith('\n')]
      table = list(csv.reader(lines))
      self._columns = table[0] if table else []
      rows = [dict(zip(self._columns, cells)) for cells in table[1:]]
      self._rows = [row for row in rows if int(row['round']) <= last_round]
    rounds, expected = [int(row['round']) for row in self._rows], range(last_round + 1)
    if rounds != list(expected):
      missing = next((t for t in expected if t not in rounds), None)
      fault = 'has rows twice or in disorder' if missing is None else f'lacks round {missing}'
      raise ValueError(
        f'{self._path} {fault}; the checkpoint has rounds 0 to {last_round} behind it: restore the'
        ' file, or start in a new folder.'
      )

  def _rewrite(self) -> None:
    self.close()
    header = ','.join(self._columns) + '\n' if self._columns else ''
    files.write_text(self._path, header + ''.join(map(self._line, self._rows)))
    self._file = open(self._path, 'a', encoding='utf-8', newline='')  # noqa: SIM115


def flatten(metrics: Any) -> dict[str, Any]:
  """Turns a process's nested metrics into columns.

  Args:
    metrics: Nested mappings, tuples or lists of scalars (NumPy, TensorFlow or Python).

  Returns:
    Column -> Python float or int. A column's name is the path to it joined by '_', without
    the parts that only say where in the process it was computed. What is not a scalar has
    no column.
  """
  flat: dict[str, Any] = {}
  full: dict[str, Any] = {}

  def visit(value, path):
    if hasattr(value, '_asdict'):
      value = value._asdict()
    if isinstance(value, Mapping):
      for key, child in value.items():
        visit(child, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
      for i, child in enumerate(value):
        visit(child, (*path, str(i)))
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
