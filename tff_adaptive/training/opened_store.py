"""Which store keeps a run's client states: as it began, else as its configuration says."""

import os
import shutil
from typing import Any

import tree

from tff_adaptive.runs import sharded_store, state_file, state_shards, state_store
from tff_adaptive.training import worker_context
from tff_adaptive.training.config import TrainingConfig


def open_store(
  config: TrainingConfig,
  path: str,
  client_state: Any,
  workers: worker_context.WorkerContext | None,
  notes: list[str],
) -> state_store.ClientStateStore:
  """Opens the store of a run.

  Args:
    config: The run's configuration.
    path: The state file.
    client_state: One client's state before its first round; `()` for none.
    workers: Who trains, if they can load and keep client states themselves.
    notes: Takes lines for the user.

  Returns:
    The store.

  Raises:
    StateError: As `ClientStateStore` does; nobody else's files have been touched then.
  """
  # Its lock comes first: it also keeps others off the folder of the shards.
  file = state_store.open_file(path, client_state, config.keep_checkpoints)
  try:
    return _open(config, path, client_state, workers, notes, file)
  except BaseException:
    file.close()
    raise


def kind(config: TrainingConfig, path: str) -> str:
  """Which store a run has, or will have: 'memory', 'disk' or 'shards'.

  Args:
    config: The run's configuration.
    path: The state file.
  """
  if sharded_store.is_sharded(path):
    return 'shards'
  is_plain = config.client_state_store == 'shards' and state_file.has_checkpoints(path)
  return 'memory' if is_plain else config.client_state_store


def _open(
  config: TrainingConfig,
  path: str,
  client_state: Any,
  workers: worker_context.WorkerContext | None,
  notes: list[str],
  file: state_file.StateFile,
) -> state_store.ClientStateStore:
  """As `open_store`, with the open file, which the store closes."""
  folder = os.path.abspath(sharded_store.folder_of(path))
  # A start that was lost before its first checkpoint decides nothing, unless shards are there.
  is_new = not file.rounds and not file.is_migrated
  if not is_new and state_shards.restore_marker(folder):
    notes.append(f'{folder}: {state_shards.MARKER} was lost and was made again.')
  wanted = config.client_state_store == 'shards' and bool(tree.flatten(client_state))
  is_made = not sharded_store.is_sharded(path)
  if is_made and not (wanted and is_new):
    return _plain(config, path, client_state, file)
  store = sharded_store.ShardedStateStore(path, client_state, file=file)
  if workers is None:
    return store
  try:
    hidden = _who_cannot_see(folder, workers)
  except BaseException:  # No node came: the folder alone would decide what the next start does.
    if is_made:
      shutil.rmtree(folder)
    raise
  if hidden:
    notes.append(f'{hidden}: client states go through this process.')
    if is_made:  # A place for them that some worker cannot see is none.
      shutil.rmtree(folder)
      return _plain(config, path, client_state, file)
  elif workers.accepts(store.source):
    store.by_reference, store.each = True, workers.each
  return store


def _plain(
  config: TrainingConfig, path: str, client_state: Any, file: state_file.StateFile
) -> state_store.ClientStateStore:
  cache_bytes = config.client_state_cache_bytes if config.client_state_store == 'disk' else None
  return state_store.ClientStateStore(path, client_state, cache_bytes=cache_bytes, file=file)


def _who_cannot_see(folder: str, workers: worker_context.WorkerContext) -> str:
  """Says which nodes do not see the folder that this process sees; '' if all do."""
  expected = state_shards.read_marker(folder)
  found = workers.on_each_node(state_shards.read_marker, folder)
  blind = [name for name, content in found if content != expected]
  if not blind:
    return ''
  return f'{folder} is not there on {", ".join(blind)}'
