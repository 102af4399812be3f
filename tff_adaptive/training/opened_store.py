"""Which store keeps a run's client states: as it began, else as its configuration says."""

import os
import shutil
from typing import Any

import tree

from tff_adaptive.training import sharded_store, state_shards, state_store, worker_context
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
    StateError: As `ClientStateStore` does.
  """
  is_new = not os.path.exists(path)
  if not is_new and state_shards.restore_marker(sharded_store.folder_of(path)):
    notes.append(
      f'{sharded_store.folder_of(path)}: {state_shards.MARKER} was lost and was made again.'
    )
  wanted = config.client_state_store == 'shards' and bool(tree.flatten(client_state))
  if not sharded_store.is_sharded(path) and not (wanted and is_new):
    return _plain(config, path, client_state)
  if is_new and workers is not None:  # A place for them that some worker cannot see is none.
    folder = os.path.abspath(sharded_store.folder_of(path))
    state_shards.create(folder)
    try:
      hidden = _who_cannot_see(folder, workers)
    except BaseException:  # No node came: the folder alone would decide what the next start does.
      shutil.rmtree(folder)
      raise
    if hidden:
      shutil.rmtree(folder)
      notes.append(f'{hidden}: client states go through this process.')
      return _plain(config, path, client_state)
  store = sharded_store.ShardedStateStore(
    path, client_state, keep_checkpoints=config.keep_checkpoints
  )
  if workers is not None:
    try:
      hidden = '' if is_new else _who_cannot_see(sharded_store.folder_of(path), workers)
    except BaseException:
      store.close()
      raise
    if hidden:
      notes.append(f'{hidden}: client states go through this process.')
    elif workers.accepts(store.source):
      store.by_reference, store.each = True, workers.each
  return store


def kind(config: TrainingConfig, path: str) -> str:
  """Which store a run has, or will have: 'memory', 'disk' or 'shards'.

  Args:
    config: The run's configuration.
    path: The state file.
  """
  if sharded_store.is_sharded(path):
    return 'shards'
  is_plain = config.client_state_store == 'shards' and os.path.exists(path)
  return 'memory' if is_plain else config.client_state_store


def _plain(config: TrainingConfig, path: str, client_state: Any) -> state_store.ClientStateStore:
  return state_store.ClientStateStore(
    path,
    client_state,
    cache_bytes=config.client_state_cache_bytes if config.client_state_store == 'disk' else None,
    keep_checkpoints=config.keep_checkpoints,
  )


def _who_cannot_see(folder: str, workers: worker_context.WorkerContext) -> str:
  """Says which nodes do not see the folder that this process sees; '' if all do."""
  folder = os.path.abspath(folder)
  expected = state_shards.read_marker(folder)
  found = workers.on_each_node(state_shards.read_marker, folder)
  blind = [name for name, content in found if content != expected]
  if not blind:
    return ''
  return f'{folder} is not there on {", ".join(blind)}'
