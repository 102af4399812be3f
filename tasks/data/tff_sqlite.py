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
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.data import files, tff_files

_COLUMNS = {
  'examples': {b'split_name', b'client_id', b'serialized_example_proto'},
  'client_metadata': {b'split_name', b'client_id', b'num_examples'},
}

Features = Mapping[str, tf.io.FixedLenFeature]
Preprocess = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]


class SqlClientData(task_lib.ClientData):
  """The clients of one split of a TFF SQLite file.

  Threads may share an object: each gets a connection of its own. Pickled, it is the file's path:
  another process opens the same file, or refuses another one.
  """

  def __init__(
    self,
    path: str,
    split: str,
    features: Features,
    preprocess: Preprocess | None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Opens a split and parses its first example, so that a wrong file is reported at once.

    Args:
      path: The file; nothing is written, nor next to it.
      split: The split's name, such as 'train'.
      features: The features of an example: name -> `tf.io.FixedLenFeature`. Those of floating
        point must be finite.
      preprocess: Maps one client's features, name -> array [n, ...], to (x, y), with as many
        examples in as out; None where only `all_features` is used.
      ranges: The smallest and the largest value allowed, by feature; others are not compared.

    Raises:
      DataError: If the file is incomplete, or a table, column, split or feature is missing, or
        a client has no examples.
    """
    tff_files.check_complete(path)
    self._path, self._split = path, split
    self._features, self._preprocess = dict(features), preprocess
    self._ranges = dict(ranges or {})
    self._local = threading.local()
    self._check_schema()
    self._sizes = self._read_sizes()
    self._ids = list(self._sizes)
    self._parse(self._rows(self._ids[0])[:1], [self._ids[0]])

  def __getstate__(self) -> dict[str, Any]:
    path = os.path.abspath(self._path)
    state = {**self.__dict__, '_path': path, 'fingerprint': tff_files.fingerprint(path)}
    del state['_local']
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    tff_files.check_same(state['_path'], state.pop('fingerprint'))
    self.__dict__.update(state, _local=threading.local())

  def _query(self, sql: str, *parameters: Any, most: int | None = None) -> list[tuple]:
    """The rows of a query, text as bytes; of a damaged file at most one a byte, or `most`."""
    with files.border(self._path, 'fetch it again'):
      if not hasattr(self._local, 'connection'):
        # Immutable: nothing is written next to the file, so that its folder may be read-only.
        uri = pathlib.Path(self._path).resolve().as_uri() + '?mode=ro&immutable=1'
        connection = sqlite3.connect(uri, uri=True)
        connection.text_factory = bytes
        connection.execute('PRAGMA trusted_schema = OFF')
        connection.execute('PRAGMA cell_size_check = ON')
        self._local.connection = connection
      most = os.path.getsize(self._path) if most is None else most
      return self._local.connection.execute(sql, parameters).fetchmany(most)

  def _check_schema(self) -> None:
    others = self._query(
      "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    )
    if others:  # SQLite would run what a file of someone else's says in them.
      kind, name = (part.decode(errors='replace') for part in others[0])
      raise errors.DataError(f'{self._path} has a {kind} {name!r}: copy its tables to a new file')
    for table, names in _COLUMNS.items():
      found = {row[1] for row in self._query(f'PRAGMA table_info({table})')}
      if missing := names - found:
        what = b', '.join(sorted(missing)).decode()
        what = f'lacks {what}' if found else 'is missing'
        raise errors.DataError(f"{self._path} is not in TFF's format: its table {table} {what}")

  def _read_sizes(self) -> dict[str, int]:
    """The number of examples by client id, sorted by id."""
    sizes: dict[str, int] = collections.defaultdict(int)
    rows = self._query(
      'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?', self._split
    )
    with files.border(f'client_metadata of {self._path}', 'fetch it again'):
      for name, count in rows:
        sizes[name.decode()] += int(count or 0)
    if not sizes:
      splits = self._query('SELECT DISTINCT split_name FROM client_metadata', most=20)
      found = ', '.join(sorted(str(s[0], errors='replace') for s in splits)) or 'none'
      raise errors.DataError(f'{self._path} has no split {self._split!r}; it has {found}')
    for client_id, n in sizes.items():
      if n < 1:
        raise errors.DataError(f'{self._path}: client {client_id!r} has no examples')
    return {c: sizes[c] for c in sorted(sizes)}

  def _rows(self, client_id: str) -> list[bytes]:
    size = self.num_examples(client_id)
    rows = self._query(
      'SELECT serialized_example_proto FROM examples WHERE client_id = ? AND split_name = ?',
      *(client_id, self._split),
      most=size + 1,
    )
    self._check_count(client_id, len(rows))
    return [r[0] for r in rows]

  def _check_count(self, client_id: str, count: int) -> None:
    if count != self._sizes[client_id]:
      raise errors.DataError(
        f'{self._path}: client {client_id!r} has {count} examples in {self._split!r} but '
        f'client_metadata says {self._sizes[client_id]}; fetch the file again'
      )

  def _parse(self, rows: Sequence[bytes], owners: Sequence[str]) -> dict[str, np.ndarray]:
    """The features of serialized examples of `owners`."""
    try:
      parsed = tf.io.parse_example(tf.constant(rows, tf.string), self._features)
    except (tf.errors.OpError, TypeError, ValueError) as e:
      reason = ' '.join(getattr(e, 'message', str(e)).split())
      whose = f'client {owners[0]!r}' if len(set(owners)) == 1 else f'the split {self._split!r}'
      raise errors.DataError(
        f'{self._path}: an example of {whose} does not have the features '
        f'{", ".join(sorted(self._features))} as expected ({reason[:200]})'
      ) from None
    arrays = {name: value.numpy() for name, value in parsed.items()}
    for name, array in arrays.items():
      self._check_values(name, array, owners)
    return arrays

  def _check_values(self, name: str, array: np.ndarray, owners: Sequence[str]) -> None:
    """Refuses what is not finite or out of range, by client, feature and row."""
    if array.dtype.kind == 'f':
      good, allowed = np.isfinite(array), 'finite'
    elif name in self._ranges:
      low, high = self._ranges[name]
      good, allowed = (array >= low) & (array <= high), f'from {low} to {high}'
    else:
      return
    if good.all():
      return
    at = tuple(np.argwhere(~good)[0])
    owner = owners[at[0]]
    row = at[0] - owners.index(owner)
    raise errors.DataError(
      f'{self._path}: {name} of client {owner!r} in {self._split!r}, row {row}, is {array[at]}; it '
      f'must be {allowed}'
    )

  @property
  def client_ids(self) -> Sequence[str]:
    return self._ids

  def num_examples(self, client_id: str) -> int:
    if client_id not in self._sizes:
      raise errors.DataError(f'{self._path}: unknown client {client_id!r} in {self._split!r}')
    return self._sizes[client_id]

  def load(self, client_id: str) -> task_lib.ExampleArrays:
    """One client's examples, preprocessed; see `tasks.ClientData.load`."""
    if self._preprocess is None:
      raise TypeError(f'{self._path} was opened without `preprocess`: use `all_features`')
    rows = self._rows(client_id)
    x, y = self._preprocess(self._parse(rows, [client_id] * len(rows)))
    return task_lib.example_arrays(x, y, f'{self._path}: client {client_id!r}')

  def all_features(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every client's features in one pass over the file, for data that fit in memory.

    Returns:
      The features, name -> array [n, ...], and for each of the n rows the position of its client
      in `client_ids` (int64). Clients come in order, each with its rows in the file's order.
    """
    rows = self._query(
      'SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? '
      'ORDER BY client_id, rowid',
      self._split,
      most=sum(self._sizes.values()) + 1,
    )
    position = {c.encode(): i for i, c in enumerate(self._ids)}
    unknown = next((c for c, _ in rows if c not in position), None)
    if unknown is not None:
      raise errors.DataError(f'{self._path}: client {unknown!r} is not in client_metadata')
    owner = np.array([position[c] for c, _ in rows], np.int64)
    order = np.argsort(owner, kind='stable')
    for client_id, n in zip(self._ids, np.bincount(owner, minlength=len(self._ids))):
      self._check_count(client_id, n)
    owner = owner[order]
    return self._parse([rows[i][1] for i in order], [self._ids[i] for i in owner]), owner
