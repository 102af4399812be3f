"""Reading SQLite files that may be damaged or hostile. No TensorFlow.

A file of someone else's is data and nothing more: what SQLite would run for it (views, triggers,
virtual tables, generated columns) is refused before a table is read. What a query gives can never
be more than the file holds, and its steps are bounded: a damaged tree whose branches lead back into
each other ends in an error instead of a loop.
"""

import os
import pathlib
import sqlite3
import threading
from collections.abc import Mapping, Sequence, Set
from typing import Any

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files, same_file, tff_files

# A row costs some 20 steps of SQLite's machine and 10 bytes or more.
_STEPS_PER_BYTE = 20
_STEPS_ALWAYS = 2_000_000
_STEPS_PER_CALL = 100_000


class Reader:
  """Queries of a SQLite file, with a connection for each thread.

  Pickled, it is the file's path: another process opens the same file, or refuses another one.

  Attributes:
    file_bytes: The file's size.
  """

  def __init__(self, path: str, columns: Mapping[str, Set[str]]):
    """Opens a file.

    Args:
      path: The file; nothing is written, nor next to it.
      columns: The columns that must be there, by table.

    Raises:
      DataError: If the file is incomplete or damaged, holds anything but plain tables, or lacks a
        table or column.
    """
    tff_files.check_complete(path)
    self.file_bytes = os.path.getsize(path)
    self._path, self._columns = path, columns
    self._local = threading.local()
    self._check_plain()
    for table, names in columns.items():
      self._check_table(table, names)

  def __reduce__(self) -> tuple:
    return _open_again, (same_file.SameFile(self._path), self._columns)

  def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple]:
    """The rows of a query; text as bytes.

    Raises:
      DataError: If the file is damaged, or gives more than it holds.
    """
    # Text that is stored as UTF-16 may grow.
    rows, left = [], 2 * self.file_bytes
    self._local.steps = 0
    with files.border(self._path, 'fetch it again'):
      try:
        for row in self._connection().execute(sql, parameters):
          # Also in a damaged tree every row has bytes of its own.
          left -= 1 + sum(len(cell) for cell in row if isinstance(cell, bytes))
          if left < 0:
            raise ValueError('its tables give more than the file holds')
          rows.append(row)
      except sqlite3.OperationalError as error:
        if self._is_too_long():
          raise ValueError('its tables lead back into each other') from error
        raise
    return rows

  def _connection(self) -> sqlite3.Connection:
    if not hasattr(self._local, 'connection'):
      # Immutable: nothing is written next to the file, so that its folder may be read-only.
      uri = pathlib.Path(self._path).resolve().as_uri() + '?mode=ro&immutable=1'
      connection = sqlite3.connect(uri, uri=True)
      connection.text_factory = bytes
      connection.set_progress_handler(self._is_too_long, _STEPS_PER_CALL)
      connection.execute('PRAGMA trusted_schema = OFF')
      connection.execute('PRAGMA cell_size_check = ON')
      self._local.connection = connection
    return self._local.connection

  def _is_too_long(self) -> bool:
    """Called by SQLite; true interrupts the query."""
    self._local.steps += _STEPS_PER_CALL
    return self._local.steps > _STEPS_ALWAYS + _STEPS_PER_BYTE * self.file_bytes

  def _check_plain(self) -> None:
    for kind, name, sql in self.query('SELECT type, name, sql FROM sqlite_master'):
      made = b' '.join((sql or b'').upper().split())
      if kind not in (b'table', b'index') or made.startswith(b'CREATE VIRTUAL'):
        what = 'virtual table' if kind == b'table' else _shown(kind)
        raise errors.DataError(
          f'{self._path} has a {what} {_shown(name)!r}; data files hold plain tables and indexes '
          'only: fetch it again or copy its tables to a new file'
        )

  def _check_table(self, table: str, names: Set[str]) -> None:
    found = self.query(f'PRAGMA table_xinfo({table})')
    missing = names - {_shown(row[1]) for row in found}
    if missing:
      what = f'lacks {", ".join(sorted(missing))}' if found else 'is missing'
      raise errors.DataError(f"{self._path} is not in TFF's format: its table {table} {what}")
    generated = [_shown(row[1]) for row in found if row[6]]
    if generated:
      raise errors.DataError(
        f'{self._path}: the column {generated[0]} of {table} is computed; it must hold its values'
      )


def _open_again(file: same_file.SameFile, columns: Mapping[str, Set[str]]) -> Reader:
  return Reader(file.path, columns)


def _shown(name: Any) -> str:
  return name.decode(errors='replace') if isinstance(name, bytes) else str(name)
