"""Stores client states in shards, files that workers read and write themselves.

Between checkpoints, new client states are staged: each subround (part of a round's clients) writes
one file with their states. The file's name depends on these clients and on the round's sequence
number, so a subround that is trained twice has one file. Staged files are not synced: after a power
failure these rounds are repeated. The run's process knows only where each state is staged.

A checkpoint moves the staged states to shards, SQLite files chosen by a hash of the client's id. It
is valid when the run's state file has its round and the digest of all shards. A shard is written by
one process in one transaction, only if it has the token that this start of the run drew.
"""

import contextlib
import hashlib
import os
import secrets
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tree

from tff_adaptive._utils import atomic_files, client_references, value_text
from tff_adaptive.runs import serialization
from tff_adaptive.runs.errors import StateError, saving
from tff_adaptive.runs.state_file import Count, StateFile, client_checksum
from tff_adaptive.runs.state_store import ClientStateStore

FOLDER, MARKER, STAGED = 'client_states', 'shards.json', 'staged'
NUM_SHARDS = 16
Each = Callable[[Callable[[Any], Any], Sequence[Any], float], list[Any]]
_SLOWEST = 5 * 10**6  # Bytes of states per second. A slower worker has been stopped, or hangs.


class Shard(StateFile):
  """An open SQLite file, a shard, with the states of the clients that `shard_of` assigns to it."""

  seconds = 60.0
  locked = (
    f'the database is locked for {seconds:.0f} s: a process that is stopped or hangs, on this node'
    ' or another, holds it. Kill it (kill -9), and give the same command again: the run resumes'
    ' from its last checkpoint'
  )

  def __init__(self, folder: str, number: int, *, is_writer: bool = False):
    super().__init__(os.path.join(folder, f'shard-{number:02d}.sqlite'), is_writer=is_writer)


class Place(NamedTuple):
  """The place of a state that is staged, which means in a file until the next checkpoint."""

  name: str  # The name of the file.
  row: int  # The position among the states in the file, from 0.
  checksum: bytes  # `client_checksum` with `Key.sequence` instead of the round.


class Key(NamedTuple):
  """A reference to one client's stored state, which workers receive instead of the state itself.

  Attributes:
    client_id: The client.
    sequence: The number of earlier calls of `ShardedStateStore.put`, for names of staged files.
    checkpoint: The round of the last checkpoint; -1 before the first.
    place: Where the client's state is staged; None if it is in a shard or was never stored.
  """

  client_id: str
  sequence: int
  checkpoint: int
  place: Place | None


class Fold(NamedTuple):
  """The argument of `fold`: the states of a checkpoint that go into one shard.

  Attributes:
    folder: The folder of the shards.
    shard: The number of the shard.
    token: The random text that this start of the run has written to all shards.
    size: The number of bytes of a state.
    rows: For each state the client's id, the round in which it was made, and its place.
    last: The round of the previous checkpoint; -1 if there is none.
    kept: The rounds of the earlier checkpoints. States that they need are not deleted.
  """

  folder: str
  shard: int
  token: str
  size: int
  rows: list[tuple[str, int, Place]]
  last: int
  kept: list[int]


def read_marker(folder: str) -> str:
  """Returns the unique text in the marker file of a folder of shards; '' if it cannot be read."""
  try:
    with open(os.path.join(folder, MARKER), encoding='utf-8', errors='replace') as file:
      return file.read()
  except OSError:
    return ''


def shard_of(client_id: str) -> int:
  """Returns the number of the shard of a client, which is the same on every machine."""
  return zlib.crc32(client_id.encode()) % NUM_SHARDS


def fold(work: Fold) -> Count:
  """Copies a checkpoint's states from staged files to a shard. A repeated call changes nothing.

  Returns:
    The change of the shard's `Count` since the previous checkpoint.

  Raises:
    StateError: If a state is damaged, or another start of the run has taken over.
    SaveError: If the shard cannot be written.
  """
  made = {client_id: number for client_id, number, _ in work.rows}
  places = [(client_id, place) for client_id, _, place in work.rows]
  total = Count()
  with contextlib.closing(Shard(work.folder, work.shard, is_writer=True)) as shard:
    if shard.settings.get('token') != work.token:
      raise StateError(
        f'{work.folder}: another process has resumed this run; this one cannot save.'
      )
    # Later states are from this same checkpoint: an earlier call wrote them and was lost.
    later = [(client_id, work.last) for client_id in made]
    shard.write('DELETE FROM client_state WHERE id = ? AND round > ?', later)
    for client_id, state in _read_staged(work.folder, work.size, places):
      total = total.plus(shard.write_client(client_id, made[client_id], state, work.kept))
    shard.commit()
  return total


def _read_staged(
  folder: str, size: int, rows: Sequence[tuple[str, Place]]
) -> Iterator[tuple[str, bytes]]:
  """Yields pairs of a client id and its staged state of `size` bytes, file by file."""
  by_name: dict[str, list[tuple[str, Place]]] = {}
  for row in rows:
    by_name.setdefault(row[1].name, []).append(row)
  for name, of_file in by_name.items():
    path = os.path.join(folder, STAGED, name)
    try:
      with open(path, 'rb') as file:
        for client_id, place in of_file:
          file.seek(place.row * size)
          state = file.read(size)
          sequence = int(name.partition('-')[0])
          if client_checksum(client_id, sequence, state) != place.checksum:
            raise OSError(f'the checksum of client {value_text.in_text(client_id)} differs')
          yield client_id, state
    except OSError as error:
      raise StateError(
        f'{path}: client states of a round since the last checkpoint cannot be read ({error}):'
        ' give the same command again, which resumes from the checkpoint.'
      ) from None


class StateSource:
  """A `client_references.StoringSource` for client states in a folder of shards."""

  def __init__(self, folder: str, initial_state: Any, token: str):
    """Creates the source from the shards' folder, the initial state and the token of this start.

    Staged files have the token in their names, so late files of an earlier start are ignored.
    """
    self._folder, self._initial, self._token = folder, initial_state, token
    self._packer = serialization.Packer(initial_state)
    self._shards: dict[int, Shard] = {}  # Those that are open.

  def __reduce__(self) -> tuple:
    return StateSource, (self._folder, self._initial, self._token)

  def load(self, keys: Sequence[Key]) -> list[Any]:
    """Returns the states of the keys, as structures of read-only NumPy arrays.

    Raises StateError if a state is missing or damaged.
    """
    staged = [(key.client_id, key.place) for key in keys if key.place is not None]
    found: dict[str, bytes | None] = dict(_read_staged(self._folder, self._packer.size, staged))
    for key in keys:
      if key.place is None:
        found[key.client_id] = self._read(key.client_id, key.checkpoint)
    return [self._packer.unpack(found[key.client_id]) for key in keys]

  def store(self, keys: Sequence[Key], values: Sequence[Any]) -> list[Place]:
    """Writes states to a staged file, unless an earlier call has. Returns a `Place` for each state.

    Raises SaveError if the file cannot be written.
    """
    states = [self._packer.pack(value) for value in values]
    ids, sequence = [key.client_id for key in keys], keys[0].sequence
    names = hashlib.sha256('\0'.join(ids).encode()).hexdigest()[:16]
    name = f'{sequence:08d}-{names}-{self._token}'
    path, temporary = (
      os.path.join(self._folder, STAGED, n) for n in (name, f'.{uuid.uuid4().hex}')
    )
    with saving(path):
      try:
        with open(temporary, 'wb') as file:
          file.writelines(states)
        try:
          atomic_files.place_new(temporary, path)
        except FileExistsError:
          with open(path, 'rb') as file:  # Checksums must be of what the file holds.
            states = [file.read(len(state)) for state in states]
      finally:
        with contextlib.suppress(OSError):
          os.unlink(temporary)
    checksums = (client_checksum(c, sequence, state) for c, state in zip(ids, states))
    return [Place(name, row, checksum) for row, checksum in enumerate(checksums)]

  def close(self) -> None:
    """Closes the open shards."""
    while self._shards:
      self._shards.popitem()[1].close()

  def _read(self, client_id: str, checkpoint: int) -> bytes | None:
    if checkpoint < 0:
      return None
    number = shard_of(client_id)
    if number not in self._shards:
      self._shards[number] = Shard(self._folder, number)
    return self._shards[number].read_client(client_id, checkpoint)


class ShardedStateStore(ClientStateStore):
  """A `ClientStateStore` whose client states are in shards next to the state file.

  Attributes:
    folder: The folder of the shards.
    source: The `StateSource` of the client states.
    by_reference: Whether `get` returns `ClientReference`s to the source instead of states.
    each: `WorkerContext.each` if workers load and store states, else a loop in this process.
  """

  def __init__(self, file: StateFile, initial_state: Any):
    """Creates the folder `client_states` beside a run's state file, which `close` will close."""
    super().__init__(file, initial_state)
    self.folder = os.path.join(os.path.dirname(os.path.abspath(file.path)), FOLDER)
    with saving(self.folder):
      os.makedirs(os.path.join(self.folder, STAGED), exist_ok=True)
      if not read_marker(self.folder):
        marker = {'id': secrets.token_hex(8)}
        atomic_files.write_json(os.path.join(self.folder, MARKER), marker)
    if not file.is_sharded:
      file.set('clients', 'shards')  # The first checkpoint makes this final.
    self._token, self._owns = secrets.token_hex(8), False
    self.source = StateSource(self.folder, initial_state, self._token)
    self.by_reference = False
    self.each: Each = lambda function, arguments, _: [function(a) for a in arguments]
    self._sequence = 0
    self._staged: dict[str, tuple[int, Place]] = {}  # Since the last checkpoint.

  def get(self, client_ids: Sequence[str]) -> list[Any]:
    """See `ClientStateStore.get`. If `by_reference`, returns references to the states."""
    self._file.check()
    self._own()
    keys = self._keys(client_ids)
    if self.by_reference:
      return [client_references.ClientReference(self.source, key) for key in keys]
    return self.source.load(keys)

  def put(
    self, client_ids: Sequence[str], states: Sequence[Any], round_number: int | None = None
  ) -> None:
    """See `ClientStateStore.put`. `states` may also be the result of `source.store`."""
    made = self._check_put(client_ids, states, round_number)
    self._own()
    if not all(isinstance(state, Place) for state in states):
      states = self.source.store(self._keys(client_ids), states)
    self._staged.update((c, (made, place)) for c, place in zip(client_ids, states))
    self._sequence += 1

  def commit(
    self, round_number: int, server_state: Any, metadata: Mapping[str, Any] | None = None
  ) -> None:
    """See `ClientStateStore.commit`."""
    super().commit(round_number, server_state, metadata)
    if self._staged:
      self._staged.clear()
      self._clear_folder()

  def forget_later(self, round_number: int) -> None:
    """See `ClientStateStore.forget_later`."""
    super().forget_later(round_number)
    self._owns = False
    self._own()

  def close(self) -> None:
    """See `ClientStateStore.close`. Staged states are lost."""
    super().close()
    self.source.close()

  def let_work(self, workers: client_references.WorkerContext) -> None:
    """Lets workers load and store states. If nodes lack the folder, only adds a text to `notes`."""
    expected = read_marker(self.folder)
    found = workers.on_each_node(read_marker, self.folder)
    blind = [name for name, content in found if content != expected]
    if blind:
      self.notes.append(
        f'{self.folder} is not there on {", ".join(blind)}: client states go through this process.'
      )
    elif workers.accepts(self.source):
      self.by_reference, self.each = True, workers.each

  def _keys(self, client_ids: Sequence[str]) -> list[Key]:
    staged = (self._staged.get(client_id, (0, None))[1] for client_id in client_ids)
    return [
      Key(client_id, self._sequence, self._last_round, place)
      for client_id, place in zip(client_ids, staged)
    ]

  def _own(self) -> None:
    """Locks out earlier starts of the run, and deletes states of rounds after the checkpoint.

    This creates all shards, because on a network file system a process that has looked for a
    missing file might not see it later.
    """
    if self._owns:
      return
    self._owns = True
    for number in range(NUM_SHARDS):
      with contextlib.closing(Shard(self.folder, number, is_writer=True)) as shard:
        shard.set('token', self._token)
        shard.write('DELETE FROM client_state WHERE round > ?', [(self._last_round,)])
        shard.commit()
    with saving(os.path.join(self.folder, STAGED)):
      os.makedirs(os.path.join(self.folder, STAGED), exist_ok=True)
      self._clear_folder()

  def _clear_folder(self) -> None:
    """Removes all staged files. Their states are in a checkpoint or belong to lost rounds."""
    staged = os.path.join(self.folder, STAGED)
    for name in os.listdir(staged):
      with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(staged, name))

  def _write_clients(self) -> None:
    self._own()
    shards: dict[int, list[tuple[str, int, Place]]] = {}
    for client_id, (made, place) in self._staged.items():
      shards.setdefault(shard_of(client_id), []).append((client_id, made, place))
    kept = list(self._file.rounds)
    work = [
      Fold(self.folder, shard, self._token, self.state_bytes, rows, self._last_round, kept)
      for shard, rows in sorted(shards.items())
    ]
    seconds = self.state_bytes * max(map(len, shards.values()), default=0) / _SLOWEST
    try:
      changes = self.each(fold, work, seconds)
    except RuntimeError:
      # Workers are lost, or one hangs. What they have folded, or fold later, makes no difference.
      changes = [fold(one) for one in work]
    for change in changes:
      self._file.add(change)

  def _elsewhere(self, round_number: int) -> Count:
    total = Count()
    for number in range(NUM_SHARDS):
      with contextlib.closing(Shard(self.folder, number)) as shard:
        total = total.plus(shard.count(round_number))
    return total


def open_store(
  path: str,
  client_state: Any,
  wanted: str,
  *,
  workers: client_references.WorkerContext | None = None,
) -> ClientStateStore:
  """Opens a run's store, of the kind with which the run began, or of kind `wanted` if it is new.

  Args:
    path: The state file.
    client_state: A client's state before its first round; `()` for none.
    wanted: The kind of store of a new run: 'memory', or 'shards' (if clients have states).
    workers: The workers that train, if they can load and store client states themselves.

  Raises:
    StateError: If the file cannot be used, as in `ClientStateStore`. No other file is changed then.
  """
  # The file's lock is taken first, because it protects the folder of the shards too.
  file = StateFile(path, signature=serialization.Packer(client_state).signature)
  try:
    # A start that was lost before its first checkpoint has not decided the kind.
    may_begin = not file.rounds and wanted == 'shards' and bool(tree.flatten(client_state))
    if not (file.is_sharded or may_begin):
      return ClientStateStore(file, client_state)
    store = ShardedStateStore(file, client_state)
    if workers is not None:
      store.let_work(workers)
    return store
  except BaseException:
    file.close()
    raise


def kind(path: str, wanted: str) -> str:
  """Returns the kind of store, 'memory' or 'shards', of a state file; `wanted` for a new run."""
  try:
    with contextlib.closing(StateFile(path)) as file:
      if file.is_sharded:
        return 'shards'
      return 'memory' if wanted == 'shards' and file.rounds else wanted
  except StateError:  # There is no file, or it will be refused.
    return wanted
