"""Federated data in TensorFlow Federated's SQLite files, read a client at a time.

The tables, as TFF's loaders expect them:

    examples(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)
    client_metadata(client_id TEXT, split_name TEXT, num_examples INTEGER)

All rows of a client are fetched with one query and parsed with one `tf.io.parse_example`, so a
client costs a few milliseconds instead of a tf.data pipeline.
"""

import collections
import os
import pathlib
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tasks import errors
from tasks import task as task_lib

_COLUMNS = {
  'examples': {'split_name', 'client_id', 'serialized_example_proto'},
  'client_metadata': {'split_name', 'client_id', 'num_examples'},
}
_HEADER_BYTES = 100

Features = Mapping[str, tf.io.FixedLenFeature]


def check_complete(path: str) -> None:
  """Refuses a file that is missing, is not SQLite or lacks its end.

  SQLite's header says how many pages the file has, so a partly downloaded file is told from its
  size alone, however large it is.

  Args:
    path: The file.

  Raises:
    DataError: With the file's name and what is wrong.
  """
  try:
    size = os.path.getsize(path)
    with open(path, 'rb') as f:
      header = f.read(_HEADER_BYTES)
  except OSError as e:
    raise errors.DataError(f'cannot read {path}: {e.strerror}') from None
  if len(header) < _HEADER_BYTES or not header.startswith(b'SQLite format 3\0'):
    raise errors.DataError(
      f'{path} is not a SQLite file ({size} bytes); delete it and fetch it again'
    )
  page = struct.unpack('>H', header[16:18])[0]
  page = 65536 if page == 1 else page
  expected = page * struct.unpack('>I', header[28:32])[0]
  if size < expected:
    raise errors.DataError(
      f'{path} is incomplete: {size} bytes of {expected}; delete it and fetch it again'
    )


def find_tff_file(name: str, data_dir: Optional[str], download: Callable[[str], Any]) -> str:
  """Finds one of TFF's files in a folder, or in TFF's cache after downloading it if need be.

  A download goes into a folder of its own and is moved into the cache only when it is whole: an
  interrupted one is never mistaken for the data.

  Args:
    name: The file's name without its folder, such as 'emnist_all.sqlite'.
    data_dir: The folder with TFF's files; None means TFF's cache, `~/.tff`.
    download: Fetches the file into the folder it is given, by TFF's own loader.

  Returns:
    The file's path; it is complete.

  Raises:
    DataError: If the file is missing or incomplete or the download fails.
  """
  if data_dir is not None:
    path = os.path.join(data_dir, name)
    if not os.path.isfile(path):
      raise errors.DataError(
        f'there is no {name} in {data_dir}; name a folder that holds it, or none to download it'
      )
    check_complete(path)
    return path
  cache = os.path.join(os.path.expanduser('~'), '.tff')
  path = os.path.join(cache, name)
  if os.path.exists(path):
    check_complete(path)
    return path
  try:
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='download-', dir=cache) as folder:
      download(folder)
      fetched = os.path.join(folder, name)
      check_complete(fetched)
      os.replace(fetched, path)
  except Exception as e:  # Network, archive and file errors come in many classes.
    reason = ' '.join(str(e).split()) or type(e).__name__
    raise errors.DataError(
      f'the download of {name} failed ({reason}); try again, or name a folder that has the file'
    ) from e
  return path


class SqlClientData(task_lib.ClientData):
  """The clients of one split of a TFF SQLite file.

  Threads may share an object: each gets a connection of its own.
  """

  def __init__(
    self,
    path: str,
    split: str,
    features: Features,
    preprocess: Callable[[Mapping[str, np.ndarray]], tuple],
  ):
    """Opens a split and parses its first example, so that a wrong file is told at once.

    Args:
      path: The file.
      split: The split's name, such as 'train'.
      features: The features of an example: name -> `tf.io.FixedLenFeature`.
      preprocess: Maps one client's features, name -> array [n, ...], to (x, y), with as many
        examples in as out.

    Raises:
      DataError: If the file is incomplete, or a table, column, split or feature is missing, or
        a client has no examples.
    """
    check_complete(path)
    self._path, self._split = path, split
    self._features, self._preprocess = dict(features), preprocess
    self._local = threading.local()
    self._check_schema()
    rows = self._query(
      'SELECT client_id, COALESCE(SUM(num_examples), 0) FROM client_metadata WHERE split_name = ? '
      'GROUP BY client_id',
      (split,),
    )
    if not rows:
      splits = self._query('SELECT DISTINCT split_name FROM client_metadata', ())
      found = sorted(_text(s[0], path) for s in splits)
      raise errors.DataError(f'{path} has no split {split!r}; it has {", ".join(found) or "none"}')
    sizes = {_text(c, path): int(n) for c, n in rows}
    for client_id, n in sizes.items():
      if n < 1:
        raise errors.DataError(f'{path}: client {client_id!r} has no examples in {split!r}')
    self._sizes = {c: sizes[c] for c in sorted(sizes)}
    self._ids = list(self._sizes)
    self._parse(self._rows(self._ids[0])[:1], self._ids[0])

  def _query(self, sql: str, parameters: Sequence[Any]) -> list[tuple]:
    try:
      if not hasattr(self._local, 'connection'):
        # Immutable: nothing is written beside the file, so that its folder may be read-only.
        uri = pathlib.Path(self._path).resolve().as_uri() + '?mode=ro&immutable=1'
        self._local.connection = sqlite3.connect(uri, uri=True)
        self._local.connection.text_factory = bytes
      return self._local.connection.execute(sql, parameters).fetchall()
    except sqlite3.Error as e:
      raise errors.DataError(f'{self._path} cannot be read ({e}); fetch it again') from e

  def _check_schema(self):
    for table, columns in _COLUMNS.items():
      found = {r[1].decode() for r in self._query(f'PRAGMA table_info({table})', ())}
      if columns - found:
        what = f'lacks {", ".join(sorted(columns - found))}' if found else 'is missing'
        raise errors.DataError(f"{self._path} is not in TFF's format: its table {table} {what}")

  def _rows(self, client_id: str) -> list[bytes]:
    if client_id not in self._sizes:
      raise errors.DataError(
        f'{self._path}: unknown client {client_id!r} in {self._split!r}; see client_ids'
      )
    rows = self._query(
      'SELECT serialized_example_proto FROM examples WHERE client_id = ? AND split_name = ?',
      (client_id, self._split),
    )
    if len(rows) != self._sizes[client_id]:
      raise errors.DataError(
        f'{self._path}: client {client_id!r} has {len(rows)} examples in {self._split!r} but '
        f'client_metadata says {self._sizes[client_id]}; fetch the file again'
      )
    return [r[0] for r in rows]

  def _parse(self, rows: Sequence[bytes], client_id: str) -> dict[str, np.ndarray]:
    try:
      parsed = tf.io.parse_example(tf.constant(rows, tf.string), self._features)
    except (tf.errors.OpError, TypeError, ValueError) as e:
      reason = ' '.join(getattr(e, 'message', str(e)).split())
      raise errors.DataError(
        f'{self._path}: an example of client {client_id!r} does not have the features '
        f'{", ".join(sorted(self._features))} as expected ({reason[:200]})'
      ) from None
    return {k: v.numpy() for k, v in parsed.items()}

  @property
  def client_ids(self) -> Sequence[str]:
    return self._ids

  def num_examples(self, client_id: str) -> int:
    if client_id not in self._sizes:
      raise errors.DataError(f'{self._path}: unknown client {client_id!r} in {self._split!r}')
    return self._sizes[client_id]

  def features(self, client_id: str) -> dict[str, np.ndarray]:
    """One client's features before preprocessing, name -> array [n, ...]."""
    return self._parse(self._rows(client_id), client_id)

  def load(self, client_id: str) -> task_lib.ExampleArrays:
    x, y = self._preprocess(self.features(client_id))
    return collections.OrderedDict(x=x, y=y)

  def all_features(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every client's features in one pass over the file, for data that fit in memory.

    Returns:
      The features, name -> array [n, ...], and for each of the n rows the position of its client
      in `client_ids` (int64). Clients come in order, each with its rows in the file's order.
    """
    rows = self._query(
      'SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? '
      'ORDER BY client_id, rowid',
      (self._split,),
    )
    position = {c.encode(): i for i, c in enumerate(self._ids)}
    unknown = next((c for c, _ in rows if c not in position), None)
    if unknown is not None:
      raise errors.DataError(f'{self._path}: client {unknown!r} is not in client_metadata')
    owner = np.array([position[c] for c, _ in rows], np.int64)
    order = np.argsort(owner, kind='stable')
    counts = np.bincount(owner, minlength=len(self._ids))
    for client_id, n in zip(self._ids, counts):
      if n != self._sizes[client_id]:
        raise errors.DataError(
          f'{self._path}: client {client_id!r} has {n} examples in {self._split!r} but '
          f'client_metadata says {self._sizes[client_id]}; fetch the file again'
        )
    return self._parse([rows[i][1] for i in order], 'any'), owner[order]


def _text(value: bytes, path: str) -> str:
  try:
    return value.decode() if isinstance(value, bytes) else str(value)
  except UnicodeDecodeError:
    raise errors.DataError(f'{path}: the name {value!r} is not UTF-8 text') from None
