"""A run's states with the clients' in files that workers read and write themselves.

What was put since the last checkpoint is in staged files, of which this process knows the places;
a checkpoint folds them into shards. So a round that is retried, or lost with the trainer or a
worker, changes nothing, and client states need not pass through this process.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tree

from tff_adaptive._utils import client_references
from tff_adaptive.runs import serialization, state_shards
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import Count, StateFile
from tff_adaptive.runs.state_store import ClientStateStore
from tff_adaptive.runs.worker_context import WorkerContext

Each = Callable[[Callable[[Any], Any], Sequence[Any], float], list[Any]]
_SLOWEST = 5 * 10**6  # Bytes of states a second: who folds fewer is stopped, or hangs.


class Key(NamedTuple):
  """Names a client's state, and where the one goes that takes its place."""

  client_id: str
  sequence: int  # The present round's number among those since the run was opened.
  checkpoint: int  # The round of the last checkpoint; -1 before the first.
  place: state_shards.Place | None  # Where it is staged; None: in its shard.


class StateSource:
  """Client states in a folder: a `client_references.StoringSource`."""

  def __init__(self, folder: str, initial_state: Any, token: str):
    """Takes the folder of the shards, the initial state, and the token of this start of the run.

    What an earlier start stages late is nobody's.
    """
    self._folder, self._initial, self._token = folder, initial_state, token
    self._packer = serialization.Packer(initial_state)
    self._shards: dict[int, state_shards.Shard] = {}  # Those that are open.

  def __reduce__(self) -> tuple:
    return StateSource, (self._folder, self._initial, self._token)

  def load(self, keys: Sequence[Key]) -> list[Any]:
    """Returns the states that keys name: structures of read-only NumPy arrays."""
    staged = [(key.client_id, key.place) for key in keys if key.place is not None]
    found: dict[str, bytes | None] = dict(
      state_shards.read_staged(self._folder, self._packer.size, staged)
    )
    for key in keys:
      if key.place is None:
        found[key.client_id] = self._read(key.client_id, key.checkpoint)
    return [self._packer.unpack(found[key.client_id]) for key in keys]

  def store(self, keys: Sequence[Key], values: Sequence[Any]) -> list[state_shards.Place]:
    """Stages states; returns their places."""
    packed = [self._packer.pack(value) for value in values]
    ids = [key.client_id for key in keys]
    return state_shards.stage(self._folder, keys[0].sequence, self._token, ids, packed)

  def close(self) -> None:
    """Closes the files."""
    while self._shards:
      self._shards.popitem()[1].close()

  def _read(self, client_id: str, checkpoint: int) -> bytes | None:
    if checkpoint < 0:
      return None
    number = state_shards.shard_of(client_id)
    if number not in self._shards:
      self._shards[number] = state_shards.Shard(self._folder, number)
    return self._shards[number].read_client(client_id, checkpoint)


class ShardedStateStore(ClientStateStore):
  """As `ClientStateStore`, with a checkpoint's client states in shards next to its file.

  Attributes:
    folder: The folder of the shards.
    source: Who has the client states.
    by_reference: Whether `get` gives references to it.
    each: Calls a function with each of some arguments, which may take some seconds: here, or in
      workers.
  """

  def __init__(self, file: StateFile, initial_state: Any):
    """Makes the folder `client_states` beside the open state file of a run, which it closes."""
    super().__init__(file, initial_state)
    self.folder = os.path.join(os.path.dirname(os.path.abspath(file.path)), state_shards.FOLDER)
    state_shards.create(self.folder)
    if not file.is_sharded:
      file.set('clients', 'shards')  # With the first checkpoint it is decided.
    self._token, self._owns = secrets.token_hex(8), False
    self.source = StateSource(self.folder, initial_state, self._token)
    self.by_reference = False
    self.each: Each = lambda function, arguments, _: [function(a) for a in arguments]
    self._sequence = 0
    self._staged: dict[str, tuple[int, state_shards.Place]] = {}  # Since the last checkpoint.

  def get(self, client_ids: Sequence[str]) -> list[Any]:
    """As `ClientStateStore.get`; references to the states if `by_reference`."""
    self._check()
    self._own()
    keys = self._keys(client_ids)
    if self.by_reference:
      return [client_references.ClientReference(self.source, key) for key in keys]
    return self.source.load(keys)

  def put(
    self, client_ids: Sequence[str], states: Sequence[Any], round_number: int | None = None
  ) -> None:
    """As `ClientStateStore.put`; `states` may be what `source.store` returned for them."""
    made = self._check_put(client_ids, states, round_number)
    self._own()
    if not all(isinstance(state, state_shards.Place) for state in states):
      states = self.source.store(self._keys(client_ids), states)
    self._staged.update((c, (made, place)) for c, place in zip(client_ids, states))
    self._sequence += 1

  def commit(
    self, round_number: int, server_state: Any, metadata: Mapping[str, Any] | None = None
  ) -> None:
    """As `ClientStateStore.commit`."""
    super().commit(round_number, server_state, metadata)
    if self._staged:
      self._staged.clear()
      state_shards.clear_staged(self.folder)

  def forget_later(self, round_number: int) -> None:
    """As `ClientStateStore.forget_later`."""
    super().forget_later(round_number)
    self._owns = False
    self._own()

  def close(self) -> None:
    """As `ClientStateStore.close`; what is staged is of no use to anybody then."""
    super().close()
    self.source.close()

  def let_work(self, workers: WorkerContext) -> str:
    """Lets workers load and keep the states; if some do not see the folder, says which nodes."""
    expected = state_shards.read_marker(self.folder)
    found = workers.on_each_node(state_shards.read_marker, self.folder)
    blind = [name for name, content in found if content != expected]
    if blind:
      return (
        f'{self.folder} is not there on {", ".join(blind)}: client states go through this process.'
      )
    if workers.accepts(self.source):
      self.by_reference, self.each = True, workers.each
    return ''

  def _keys(self, client_ids: Sequence[str]) -> list[Key]:
    staged = (self._staged.get(client_id, (0, None))[1] for client_id in client_ids)
    return [
      Key(client_id, self._sequence, self._last_round, place)
      for client_id, place in zip(client_ids, staged)
    ]

  def _own(self) -> None:
    """Keeps out whoever had the folder before; what they have staged is dropped."""
    if not self._owns:
      self._owns = True
      state_shards.take_over(self.folder, self._token, self._last_round)

  def _write_clients(self, file: StateFile) -> None:
    self._own()
    shards: dict[int, list[tuple[str, int, state_shards.Place]]] = {}
    for client_id, (made, place) in self._staged.items():
      shards.setdefault(state_shards.shard_of(client_id), []).append((client_id, made, place))
    work = [
      state_shards.Fold(
        folder=self.folder,
        shard=shard,
        token=self._token,
        size=self.state_bytes,
        rows=rows,
        last=self._last_round,
        kept=list(file.rounds),
      )
      for shard, rows in sorted(shards.items())
    ]
    seconds = self.state_bytes * max(map(len, shards.values()), default=0) / _SLOWEST
    try:
      changes = self.each(state_shards.fold, work, seconds)
    except RuntimeError:
      # They are lost, or one is stopped: what they have folded, or fold late, changes no more.
      changes = [state_shards.fold(one) for one in work]
    for change in changes:
      file.add(change)

  def _elsewhere(self, round_number: int) -> Count:
    return state_shards.count(self.folder, round_number)


def open_store(
  path: str,
  client_state: Any,
  wanted: str,
  *,
  cache_bytes: int | None = None,
  keep_checkpoints: int = 2,
  workers: WorkerContext | None = None,
  notes: list[str] | None = None,
) -> ClientStateStore:
  """Opens the store of a run: as it began, else as its settings say.

  Args:
    path: The state file.
    client_state: One client's state before its first round; `()` for none.
    wanted: Where a new run keeps client states: 'memory', 'disk' or 'shards'.
    cache_bytes: The most bytes of client states that 'disk' keeps in memory.
    keep_checkpoints: How many checkpoints the file keeps, >= 1.
    workers: Who trains, if they can load and keep client states themselves.
    notes: Takes lines for the user.

  Raises:
    StateError: As `ClientStateStore` does; nobody else's files have been touched then.
  """
  signature = serialization.Packer(client_state).signature
  # Its lock comes first: it also keeps others off the folder of the shards.
  file = StateFile(path, signature=signature, keep_checkpoints=keep_checkpoints)
  try:
    # A start that was lost before its first checkpoint decides nothing.
    may_begin = not file.rounds and wanted == 'shards' and bool(tree.flatten(client_state))
    if not (file.is_sharded or may_begin):
      cache_bytes = cache_bytes if wanted == 'disk' else None
      return ClientStateStore(file, client_state, cache_bytes=cache_bytes)
    store = ShardedStateStore(file, client_state)
    note = store.let_work(workers) if workers is not None else ''
    if note and notes is not None:
      notes.append(note)
    return store
  except BaseException:
    file.close()
    raise


def kind(path: str, wanted: str) -> str:
  """Which store a run with a state file has, or will have: of a new one that which is wanted."""
  try:
    with contextlib.closing(StateFile(path)) as file:
      if file.is_sharded:
        return 'shards'
      return 'memory' if wanted == 'shards' and file.rounds else wanted
  except StateError:  # There is none, or it will be refused.
    return wanted
