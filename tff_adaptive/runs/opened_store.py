"""Which store keeps a run's client states: as it began, else as its settings say."""

import contextlib
import os
import shutil
from typing import Any

import tree

from tff_adaptive.runs import serialization, sharded_store, state_shards
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import SavedStates, StateFile
from tff_adaptive.runs.state_store import ClientStateStore
from tff_adaptive.runs.worker_context import WorkerContext


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
  """Opens the store of a run.

  Args:
    path: The state file.
    client_state: One client's state before its first round; `()` for none.
    wanted: Where a new run keeps client states: 'memory', 'disk' or 'shards'.
    cache_bytes: The most bytes of client states that 'disk' keeps in memory.
    keep_checkpoints: How many checkpoints the file keeps, >= 1.
    workers: Who trains, if they can load and keep client states themselves.
    notes: Takes lines for the user.

  Returns:
    The store.

  Raises:
    StateError: As `ClientStateStore` does; nobody else's files have been touched then.
  """
  signature = serialization.Packer(client_state).signature
  # Its lock comes first: it also keeps others off the folder of the shards.
  file = StateFile(path, signature, keep_checkpoints)
  try:
    # A start that was lost before its first checkpoint decides nothing.
    is_new = not file.rounds
    may_begin = is_new and wanted == 'shards' and bool(tree.flatten(client_state))
    if file.is_sharded or may_begin:
      store = _sharded(file, client_state, workers, notes)
      if store is not None:
        return store
    return ClientStateStore(
      file, client_state, cache_bytes=cache_bytes if wanted == 'disk' else None
    )
  except BaseException:
    file.close()
    raise


def kind(path: str, wanted: str) -> str:
  """Which store a run has, or will have: 'memory', 'disk' or 'shards'.

  Args:
    path: The state file.
    wanted: Where a new run keeps client states.
  """
  try:
    with contextlib.closing(SavedStates(path)) as file:
      if file.is_sharded:
        return 'shards'
      return 'memory' if wanted == 'shards' and file.rounds else wanted
  except StateError:  # There is none, or it will be refused.
    return wanted


def _sharded(
  file: StateFile, client_state: Any, workers: WorkerContext | None, notes: list[str] | None
) -> ClientStateStore | None:
  """The store in shards; None if the run is new and some worker cannot see the folder."""
  folder = os.path.abspath(sharded_store.folder_of(file.path))
  state_shards.create(folder)
  hidden = '' if workers is None else _who_cannot_see(folder, workers)
  if hidden and notes is not None:
    notes.append(f'{hidden}: client states go through this process.')
  if hidden and not file.is_sharded:  # A place for them that some worker cannot see is none.
    shutil.rmtree(folder)
    return None
  store = sharded_store.ShardedStateStore(file, client_state)
  if workers is not None and not hidden and workers.accepts(store.source):
    store.by_reference, store.each = True, workers.each
  return store


def _who_cannot_see(folder: str, workers: WorkerContext) -> str:
  """Says which nodes do not see the folder that this process sees; '' if all do."""
  expected = state_shards.read_marker(folder)
  found = workers.on_each_node(state_shards.read_marker, folder)
  blind = [name for name, content in found if content != expected]
  if not blind:
    return ''
  return f'{folder} is not there on {", ".join(blind)}'
