"""Finds or downloads TensorFlow Federated's SQLite files, and reads them client by client.

The tables are those that TFF's loaders expect:

    examples(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)
    client_metadata(client_id TEXT, split_name TEXT, num_examples INTEGER)

One query fetches all rows of a client, and one `tf.io.parse_example` parses them. This takes a few
milliseconds for a client and needs no tf.data pipeline. Clients that were loaded last stay in
memory, because parsing may take as long as training on what was parsed.
"""

import functools
import hashlib
import itertools
import os
import pathlib
import re
import sqlite3
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cachetools
import numpy as np
import tensorflow as tf

from tff_adaptive._utils import temporary_folders
from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.data import files

_AGAIN = 'fetch it again'
# Of a large file so many blocks are hashed.
_BLOCK_BYTES = 1 << 20
_BLOCKS = 1024
_LARGEST_PAGE = 65536
_REMEMBERED_BYTES = 256 << 20  # Of the examples of clients that were loaded last.

Features = Mapping[str, tf.io.FixedLenFeature]
Preprocess = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]


def check_complete(path: str) -> None:
  """Raises DataError if a file is missing, is not SQLite, or is incomplete.

  SQLite's header has the number of pages, so the size shows whether a download is complete.
  """
  path = files.existing(path)
  with files.border(path, 'delete it and fetch it again'), open(path, 'rb') as f:
    magic, page, pages = struct.unpack('>16sH10xI', f.read(32))
    if magic != b'SQLite format 3\0':
      raise ValueError('it is not a SQLite file')
    if page == 1:  # The field has two bytes, which cannot hold the largest size.
      page = _LARGEST_PAGE
    expected = page * pages
    size = os.path.getsize(path)
    if size < expected:
      raise ValueError(f'it is incomplete: {size} bytes of {expected}')


def fingerprint(path: str) -> tuple[int, str]:
  """Returns a file's size and SHA-256. Above 1 GiB only 1,024 blocks of 1 MiB are hashed."""
  status = os.stat(path)
  return status.st_size, _digest(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _digest(path: str, size: int, modified: int) -> str:
  # It is an argument so that a file that has changed is hashed again.
  del modified
  total = hashlib.sha256()
  with open(path, 'rb') as file:
    for at in range(0, size, max(_BLOCK_BYTES, size // _BLOCKS)):
      file.seek(at)
      total.update(file.read(_BLOCK_BYTES))
  return total.hexdigest()


def find_tff_file(name: str, data_dir: str | None) -> str:
  """Returns the path of one of TFF's files in a folder, or in TFF's cache if `data_dir` is None.

  A file that the cache lacks is downloaded by TFF; its name up to '_' or '.' names the module of
  `tff.simulation.datasets`. Raises DataError if the folder lacks the file or the download fails.
  """
  cache = data_dir or os.path.join(os.path.expanduser('~'), '.tff')
  path = os.path.join(cache, name)
  if os.path.exists(path):
    return path
  if data_dir is not None:
    raise errors.DataError(
      f'there is no {name} in {data_dir}; name a folder that holds it, or none to download it'
    )
  with files.border(f'the download of {name}', 'try again, or name a folder that has the file'):
    import tensorflow_federated as tff  # Slow to import and needed for a download only.

    module = getattr(tff.simulation.datasets, re.split('[._]', name)[0])
    os.makedirs(cache, exist_ok=True)
    with temporary_folders.folder('download-', cache) as folder:
      module.load_data(cache_dir=folder)
      check_complete(os.path.join(folder, name))
      os.replace(os.path.join(folder, name), path)
  return path


class SqlClientData(task_lib.ClientData):
  """The clients of one split of a TFF SQLite file.

  Threads may share an object, because each thread gets its own connection. A pickled object has the
  file's path. Unpickling raises DataError if the file at this path is missing or differs.
  """

  def __init__(
    self,
    path: str,
    split: str,
    features: Features,
    preprocess: Preprocess | None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
  ):
    """Opens a split and parses its first example, so that a wrong file is reported early.

    Args:
      path: The file. Nothing is written to it or beside it.
      split: The split's name, such as 'train'.
      features: The features of an example: name -> `tf.io.FixedLenFeature`. Floating-point features
        must be finite.
      preprocess: A function from one client's features, name -> array [n, ...], to (x, y) with the
        same number of examples. None if only `all_features` is used.
      ranges: Smallest and largest allowed value by feature name; other features are not checked.

    Raises:
      DataError: If the file is incomplete, or a table, column, split or feature is missing, or
        a client has no examples.
    """
    check_complete(path)
    self._path = path
    self._split = split
    self._features = dict(features)
    self._preprocess = preprocess
    self._ranges = dict(ranges or {})
    self._begin_in_process()
    self._sizes = self._read_sizes()
    self._ids = list(self._sizes)
    self._parse(self._rows(self._ids[0])[:1], [self._ids[0]])

  def _begin_in_process(self) -> None:
    """Makes what belongs to this process and its threads, and is not pickled."""
    self._local = threading.local()
    self._lock = threading.Lock()
    self._loaded: Any = cachetools.LRUCache(_REMEMBERED_BYTES, getsizeof=_num_bytes)

  def __getstate__(self) -> dict[str, Any]:
    path = os.path.abspath(self._path)
    state = {**self.__dict__, '_path': path, 'fingerprint': fingerprint(path)}
    for name in ('_local', '_lock', '_loaded'):
      del state[name]
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    path = state['_path']
    expected = state.pop('fingerprint')
    if not os.path.isfile(path) or fingerprint(path) != expected:
      raise errors.DataError(
        f"{path} differs from the trainer's file of that name, or is not on this machine: copy the "
        "trainer's file there, or keep it on storage that all machines share"
      )
    self.__dict__.update(state)
    self._begin_in_process()

  def _query(self, sql: str, *parameters: Any, most: int | None = None) -> list[tuple]:
    """Returns at most `most` rows of a query, with text as bytes; the default is the file size."""
    with files.border(self._path, _AGAIN):
      if not hasattr(self._local, 'connection'):
        # Immutable: nothing is written next to the file, so that its folder may be read-only.
        uri = pathlib.Path(self._path).resolve().as_uri() + '?mode=ro&immutable=1'
        connection = sqlite3.connect(uri, uri=True)
        connection.text_factory = bytes
        connection.execute('PRAGMA trusted_schema = OFF')
        connection.execute('PRAGMA cell_size_check = ON')
        self._local.connection = connection
      if most is None:
        most = os.path.getsize(self._path)  # A damaged file may say that it has more rows.
      return self._local.connection.execute(sql, parameters).fetchmany(most)

  def _read_sizes(self) -> dict[str, int]:
    """Returns the number of examples by client id, sorted by id."""
    # Only tables count, because SQLite would run the query of a view in a foreign file.
    tables = self._query("SELECT name FROM sqlite_master WHERE type = 'table'")
    if not {(b'examples',), (b'client_metadata',)} <= set(tables):
      raise errors.DataError(
        f"{self._path} is not in TFF's format: it has no tables examples and client_metadata"
      )
    rows = self._query(
      'SELECT client_id, SUM(num_examples) FROM client_metadata WHERE split_name = ? '
      'GROUP BY client_id',
      self._split,
    )
    if not rows:
      splits = self._query('SELECT DISTINCT split_name FROM client_metadata', most=20)
      names = ', '.join(sorted(_printable(name) for (name,) in splits)) or 'none'
      raise errors.DataError(f'{self._path} has no split {self._split!r}; it has {names}')
    with files.border(f'client_metadata of {self._path}', _AGAIN):
      if any(name is None or count is None for name, count in rows):
        raise ValueError('client_id or num_examples is NULL')
      sizes = sorted((name.decode(), int(count)) for name, count in rows)
      if min(n for _, n in sizes) < 1:
        raise ValueError('a client has no examples')
    return dict(sizes)

  def _rows(self, client_id: str) -> list[bytes]:
    size = self.num_examples(client_id)
    rows = self._query(
      'SELECT serialized_example_proto FROM examples WHERE client_id = ? AND split_name = ?',
      client_id,
      self._split,
      # One more than there should be, to notice further rows.
      most=size + 1,
    )
    if len(rows) != size:
      raise errors.DataError(
        f'{self._path}: client {client_id!r} has {len(rows)} examples in {self._split!r} but '
        f'client_metadata says {size}; fetch the file again'
      )
    return [r[0] for r in rows]

  def _parse(self, rows: Sequence[bytes], owners: Sequence[str]) -> dict[str, np.ndarray]:
    """Parses serialized examples and checks their values; `owners` has each example's client id."""
    whose = f'the split {self._split!r}'
    if len(set(owners)) == 1:
      whose = f'client {owners[0]!r}'
    expected = ', '.join(sorted(self._features))
    with files.border(f'{self._path}: an example of {whose} with {expected}', _AGAIN):
      parsed = tf.io.parse_example(tf.constant(rows, tf.string), self._features)
    arrays = {name: value.numpy() for name, value in parsed.items()}
    for name, array in arrays.items():
      if array.dtype.kind == 'f':
        good = np.isfinite(array)
        allowed = 'finite'
      elif name in self._ranges:
        low, high = self._ranges[name]
        good = (array >= low) & (array <= high)
        allowed = f'from {low} to {high}'
      else:
        continue
      if not good.all():
        at = tuple(np.argwhere(~good)[0])
        owner = owners[at[0]]
        raise errors.DataError(
          f'{self._path}: {name} of client {owner!r} in {self._split!r}, row '
          f'{at[0] - owners.index(owner)}, is {array[at]}; it must be {allowed}'
        )
    return arrays

  @property
  def client_ids(self) -> Sequence[str]:
    return self._ids

  def num_examples(self, client_id: str) -> int:
    if client_id not in self._sizes:
      raise errors.DataError(f'{self._path}: unknown client {client_id!r} in {self._split!r}')
    return self._sizes[client_id]

  @cachetools.cachedmethod(lambda self: self._loaded, lock=lambda self: self._lock)
  def load(self, client_id: str) -> task_lib.ExampleArrays:
    """Returns one client's examples, preprocessed; see `tasks.ClientData.load`.

    The arrays cannot be written to, because a later call may return the same ones.
    """
    assert self._preprocess is not None  # Without it there is only `all_features`.
    rows = self._rows(client_id)
    x, y = self._preprocess(self._parse(rows, [client_id] * len(rows)))
    examples = task_lib.example_arrays(x, y, f'{self._path}: client {client_id!r}')
    for array in examples.values():
      array.setflags(write=False)
    return examples

  def all_features(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns every client's features, parsed together, for data that fit in memory.

    Returns:
      The features, arrays [n, ...] by name, and int64 [n], the position of each row's client in
      `client_ids`. Clients come in order, and a client's rows in the file's order.
    """
    rows = [self._rows(client_id) for client_id in self._ids]
    owner = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    owners = [self._ids[i] for i in owner]
    return self._parse(list(itertools.chain.from_iterable(rows)), owners), owner


def _num_bytes(examples: task_lib.ExampleArrays) -> int:
  return sum(array.nbytes for array in examples.values())


def _printable(name: Any) -> str:
  """Returns a split's name for a message. SQLite may have stored NULL or a number."""
  if isinstance(name, bytes):
    return str(name, errors='replace')
  if name is None:
    return 'NULL'
  return repr(name)


def load_task(
  file: str,
  data_dir: str | None,
  features: Features,
  preprocess: Preprocess,
  ranges: Mapping[str, tuple[int, int]] | None = None,
  prefix: str = '',
  **task: Any,
) -> task_lib.Task:
  """Loads a task from one of TFF's files, with a split for training and one for validation.

  For the arguments see `find_tff_file` and `SqlClientData`. `prefix` comes before 'train' and
  'test' in the names of the splits. `task` has the task's other attributes. Its `validation` may be
  a function from the test clients to (x, y); by default all their examples are for validation.
  """
  path = find_tff_file(file, data_dir)
  names = f'{prefix}train', f'{prefix}test'
  train, test = (SqlClientData(path, name, features, preprocess, ranges) for name in names)
  choose = task.pop('validation', lambda clients: preprocess(clients.all_features()[0]))
  return task_lib.Task(
    train=train,
    validation=task_lib.example_arrays(*choose(test)),
    source=f'{path}, splits {" and ".join(names)}',
    **task,
  )
