"""A run's states with the clients' in files that workers read and write themselves.

What was put since the last checkpoint is in staged files, of which this process knows the places;
a checkpoint folds them into shards. So a round that is retried, or lost with the trainer or a
worker, changes nothing, and client states need not pass through this process.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils import client_references
from tff_adaptive.runs import serialization, staged_states, state_shards
from tff_adaptive.runs.state_database import Count
from tff_adaptive.runs.state_file import StateFile
from tff_adaptive.runs.state_store import ClientStateStore

Each = Callable[[Callable[[Any], Any], Sequence[Any], float], list[Any]]
_SLOWEST = 5 * 10**6  # Bytes of states a second: who folds fewer is stopped, or hangs.


class Key(NamedTuple):
  """Names a client's state, and where the one goes that takes its place.

  Attributes:
    client_id: The client.
    sequence: The present round's number among those since the run was opened.
    checkpoint: The round of the last checkpoint; -1 before the first.
    place: Where the state is staged; None: in its shard, as the checkpoint counts it.
  """

  client_id: str
  sequence: int
  checkpoint: int
  place: staged_states.Place | None


class StateSource:
  """Client states in a folder: a `client_references.StoringSource`."""

  def __init__(self, folder: str, initial_state: Any, token: str):
    """Opens the folder.

    Args:
      folder: The folder of the shards.
      initial_state: One client's state before its first round.
      token: Of this start of the run: what an earlier one stages late is nobody's.
    """
    self._folder, self._initial, self._token = folder, initial_state, token
    self._packer = serialization.Packer(initial_state)
    self._shards: dict[int, state_shards.Shard] = {}  # Those that are open.

  def __reduce__(self) -> tuple:
    return StateSource, (self._folder, self._initial, self._token)

  def load(self, keys: Sequence[Key]) -> list[Any]:
    """Returns the states that keys name: structures of read-only NumPy arrays."""
    staged = [(key.client_id, key.place) for key in keys if key.place is not None]
    folder = os.path.join(self._folder, state_shards.STAGED)
    found = dict(staged_states.read(folder, self._packer.size, staged))
    return [
      self._packer.unpack(
        found[key.client_id] if key.place is not None else self._read(key.client_id, key.checkpoint)
      )
      for key in keys
    ]

  def store(self, keys: Sequence[Key], values: Sequence[Any]) -> list[staged_states.Place]:
    """Stages states; returns their places."""
    folder = os.path.join(self._folder, state_shards.STAGED)
    packed = [self._packer.pack(value) for value in values]
    ids = [key.client_id for key in keys]
    return staged_states.write(folder, keys[0].sequence, self._token, ids, packed)

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
    source: Who has the client states.
    by_reference: Whether `get` gives references to it.
    each: Calls a function with each of some arguments, which may take some seconds: here, or in
      workers.
  """

  def __init__(self, file: StateFile, initial_state: Any):
    """Takes the folder `client_states` beside a state file; `opened_store` has made it.

    Args:
      file: The open file; the store closes it.
      initial_state: As for `ClientStateStore`.
    """
    super().__init__(file, initial_state)
    self._folder = os.path.abspath(folder_of(file.path))
    if not file.is_sharded:
      file.set('clients', 'shards')  # With the first checkpoint it is decided.
    self._token, self._owns = secrets.token_hex(8), False
    self.source = StateSource(self._folder, initial_state, self._token)
    self.by_reference = False
    self.each: Each = lambda function, arguments, _: [function(a) for a in arguments]
    self._sequence = 0
    self._staged: dict[str, tuple[int, staged_states.Place]] = {}  # Since the last checkpoint.

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
    if not all(isinstance(state, staged_states.Place) for state in states):
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
      staged_states.clear(os.path.join(self._folder, state_shards.STAGED))

  def forget_later(self, round_number: int) -> None:
    """As `ClientStateStore.forget_later`."""
    super().forget_later(round_number)
    self._owns = False
    self._own()

  def close(self) -> None:
    """As `ClientStateStore.close`; what is staged is of no use to anybody then."""
    super().close()
    self.source.close()

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
      state_shards.take_over(self._folder, self._token, self._last_round)

  def _write_clients(self, file: StateFile) -> None:
    self._own()
    ids = list(self._staged)
    groups = state_shards.group(ids)
    work = [
      state_shards.Fold(
        folder=self._folder,
        shard=shard,
        token=self._token,
        size=self.state_bytes,
        rows=[(ids[i], *self._staged[ids[i]]) for i in positions],
        last=self._last_round,
        kept=list(file.rounds),
      )
      for shard, positions in sorted(groups.items())
    ]
    seconds = self.state_bytes * max(map(len, groups.values()), default=0) / _SLOWEST
    try:
      changes = self.each(state_shards.fold, work, seconds)
    except RuntimeError:
      # They are lost, or one is stopped: what they have folded, or fold late, changes no more.
      changes = [state_shards.fold(one) for one in work]
    for change in changes:
      file.add(change)

  def _elsewhere(self, round_number: int) -> Count:
    return state_shards.count(self._folder, round_number)


def folder_of(path: str) -> str:
  """The folder of the client states beside a state file."""
  return os.path.join(os.path.dirname(path), state_shards.FOLDER)
