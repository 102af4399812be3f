"""Opens and saves a run's folder, and refuses folders that cannot be resumed."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from tff_adaptive._utils import atomic_files, noise_states
from tff_adaptive.runs import (
  config as config_file,
  metrics as metrics_lib,
  serialization,
  state_file,
  state_path,
  state_store,
  summary,
)
from tff_adaptive.runs.errors import ResumeError, StateError, saving

CURVES = 'curves.png'
ResumeFrom: TypeAlias = Literal['latest', 'previous']
_FILES = (metrics_lib.FILE, summary.FILE, CURVES, config_file.FILE)


class RunFiles:
  """The checkpoints, client states and metrics.csv of one run, in its folder or only in memory.

  Attributes:
    output_dir: The folder; None for a run that writes nothing to disk.
    store: The `ClientStateStore` of the client states and checkpoints.
    log: The `MetricsLog` that writes metrics.csv.
    state: The current server state, at first the one from which training starts or continues.
    round_number: The number of rounds done.
    saved_round: The round of the last checkpoint; -1 if there is none.
    metadata: What the last checkpoint has besides the states and the run's id.
  """

  def __init__(
    self,
    config: Any,
    output_dir: str | None,
    run_id: str,
    server_state: Any,
    client_state: Any,
    resume_from: ResumeFrom = 'latest',
    *,
    accept_lost_rows: bool = False,
  ):
    """Opens the folder, or creates it.

    Args:
      config: A `training.TrainingConfig`.
      output_dir: The folder; None saves nothing.
      run_id: The run's id. A checkpoint with another id is refused.
      server_state: The server state before the first round.
      client_state: A client's state before its first round; `()` for none.
      resume_from: The checkpoint to resume from, 'latest' or 'previous'.
      accept_lost_rows: Whether metrics.csv may lack rounds before the checkpoint.

    Raises:
      ResumeError: If the run cannot be resumed. Nothing is changed then.
      StateError: If the checkpoint is damaged, in use or of another run.
    """
    self.output_dir = output_dir
    self._run_id = run_id
    self.state = server_state
    self.round_number = 0
    self.saved_round = -1
    self._accepts_lost_rows = accept_lost_rows
    self.metadata: dict[str, Any] = {}
    self._config_text = b''  # As it was at the first save.
    if output_dir is not None:  # SQLite would fail later, with a message that names no reason.
      state_path.check_length(output_dir)
    with contextlib.ExitStack() as stack:
      if output_dir is None:
        self.store = state_store.ClientStateStore(None, client_state)
        self.log = metrics_lib.MetricsLog(None)
      else:
        path = state_file.path(output_dir)
        # Before the store makes the file; `_resume` asks again, for a file without a checkpoint.
        if not os.path.exists(path) or not os.path.getsize(path):
          _refuse_results_without_checkpoint(output_dir, path)
        for needed in (output_dir, os.path.dirname(path)):
          with saving(needed, ResumeError):
            os.makedirs(needed, exist_ok=True)
        if noise_states.have_secret(serialization.named_leaves(server_state)):
          with saving(path, ResumeError):
            os.close(os.open(path, os.O_CREAT, 0o600))  # SQLite's journal has the same mode.
            os.chmod(path, 0o600)
        self.store = state_store.ClientStateStore(path, client_state)
        stack.callback(self.store.close)
        rows = self._resume(output_dir, path, config.rounds, resume_from)
        atomic_files.remove_leftovers(output_dir, _FILES)
        self.log = metrics_lib.MetricsLog(os.path.join(output_dir, metrics_lib.FILE), kept=rows)
        stack.callback(self.log.close)
      # Nothing failed: what was opened stays open until `close`.
      self._stack = stack.pop_all()

  def close(self) -> None:
    """Closes the files; unsaved changes are dropped."""
    self._stack.close()

  def save(self, metadata: Mapping[str, Any] | None = None) -> bool:
    """Saves `state` in a checkpoint. Returns False if the round has one or there is no folder.

    `metadata` are further values for the checkpoint, which JSON can hold.

    Raises SaveError if a file cannot be written. Earlier checkpoints are kept then.
    """
    if self.output_dir is None:
      return False
    # Also when nothing else is to be saved: the last call is that of the end.
    self._keep_config(os.path.join(self.output_dir, config_file.FILE))
    if self.saved_round == self.round_number:
      return False
    self.log.sync()  # A checkpoint requires the rows up to its round.
    self.store.commit(self.round_number, self.state, {**(metadata or {}), 'run_id': self._run_id})
    self.saved_round = self.round_number
    return True

  def verify(self) -> None:
    """Checks that what the run has saved is on the disk. Raises SaveError if it is not."""
    if self.output_dir is not None:
      self.log.sync()
      self.store.verify()
      self._keep_config(os.path.join(self.output_dir, config_file.FILE))

  def _keep_config(self, path: str) -> None:
    """Writes config.json again if it was cut short. Raises SaveError if it is gone."""
    with saving(path):
      size = os.stat(path).st_size  # A folder without config.json is no run's.
      if not self._config_text:
        with open(path, 'rb') as file:
          self._config_text = file.read()
      elif size < len(self._config_text):
        atomic_files.write_text(path, self._config_text.decode())

  def _resume(
    self, folder: str, path: str, rounds: int, resume_from: ResumeFrom
  ) -> list[dict[str, float]]:
    """Restores a checkpoint if there is one, and returns the rows up to its round."""
    checkpoint = self.store.restore(self.state, resume_from)
    if checkpoint is None:
      _refuse_results_without_checkpoint(folder, path)
      return []
    if checkpoint.metadata.get('run_id', '') != self._run_id:
      raise StateError(f'{path} holds the checkpoint of another run: start in a new folder.')
    self.state = checkpoint.server_state
    self.round_number = checkpoint.round_number
    self.saved_round = checkpoint.round_number
    self.metadata = dict(checkpoint.metadata)
    if self.round_number > rounds:  # A shorter run is another one; its model is gone.
      raise ResumeError(
        f'The run in {folder} has done {self.round_number} rounds already, rounds is {rounds}:'
        f' give at least {self.round_number}, or start in a new folder.'
      )
    metrics = os.path.join(folder, metrics_lib.FILE)
    rows = _rows_behind(metrics, self.round_number, self._accepts_lost_rows)
    # Only now, when nothing can refuse the run any more.
    self.store.forget_later(self.round_number)
    return rows


def _refuse_results_without_checkpoint(folder: str, path: str) -> None:
  """Raises ResumeError if a folder has results but its checkpoint at `path` is missing."""
  for name in (metrics_lib.FILE, summary.FILE):
    results = os.path.join(folder, name)
    # Before the first checkpoint metrics.csv is empty.
    if os.path.exists(results) and os.path.getsize(results):
      raise ResumeError(
        f'{results} has the results of a run, but its checkpoint, {path}, is gone: restore it, or'
        ' start in a new folder.'
      )


def _rows_behind(metrics: str, last_round: int, accepts_lost: bool) -> list[dict[str, float]]:
  """Returns the rows up to a checkpoint's round.

  Raises ResumeError if one of them is missing, unless `accepts_lost`.
  """
  try:
    rows = metrics_lib.read(metrics)
  except FileNotFoundError:
    rows = []
  rows = [row for row in rows if row['round'] <= last_round]
  # Round 0, the initial model, has a row too.
  missing = set(range(last_round + 1)).difference(row['round'] for row in rows)
  # A run that was killed between its first checkpoint and its first row has none.
  if missing and (rows or last_round) and not accepts_lost:
    raise ResumeError(
      f'{metrics} lacks round {min(missing)}, but the checkpoint is of round {last_round}: restore'
      ' the file, or start in a new folder. If the rows are lost, accept_lost_rows resumes the run'
      ' without them.'
    )
  return rows
