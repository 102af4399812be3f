"""A run's folder: opening it, refusing what cannot be gone on from, saving."""

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import (
  config as config_file,
  metrics as metrics_lib,
  sharded_store,
  state_store,
  summary,
  worker_context,
)
from tff_adaptive.runs.errors import ResumeError, RunFileError, SaveError, StateError, saving
from tff_adaptive.training import client_evaluation
from tff_adaptive.training.config import TrainingConfig

CURVES = 'curves.png'
ResumeFrom: TypeAlias = Literal['latest', 'previous']
_FILES = (metrics_lib.FILE, summary.FILE, CURVES, config_file.FILE)


class RunFiles:
  """The checkpoints and the rows of one run; nothing on the disk for a run without a folder.

  Attributes:
    store: The client states, and the checkpoints.
    log: metrics.csv.
    state: The server state to go on from.
    round_number: Rounds that it has been through.
    notes: Lines for the user.
  """

  def __init__(
    self,
    config: TrainingConfig,
    output_dir: str | None,
    run_id: str,
    server_state: Any,
    client_state: Any,
    resume_from: ResumeFrom = 'latest',
    workers: worker_context.WorkerContext | None = None,
  ):
    """Opens the folder, or makes it.

    Args:
      config: The run's configuration.
      output_dir: The folder; None saves nothing.
      run_id: Of the run; a checkpoint of another one is refused.
      server_state: The server state before the first round.
      client_state: One client's state before its first round; `()` for none.
      resume_from: Which checkpoint to go on from.
      workers: Who trains, if they can load and keep client states themselves.

    Raises:
      ResumeError: If the run cannot be gone on with; nothing is changed then.
      StateError: If the checkpoint is damaged, in use or of another run.
    """
    self.output_dir, self._run_id = output_dir, run_id
    self.state, self.round_number = server_state, 0
    self.notes: list[str] = []
    self._saved = -1
    self._workers = workers
    self._stack = contextlib.ExitStack()
    if output_dir is None:
      self.store: state_store.ClientStateStore = state_store.ClientStateStore(None, client_state)
      self.log = metrics_lib.MetricsLog(None)
      return
    with self._stack as stack:
      self._open(config, output_dir, client_state, resume_from, stack)
      self._stack = stack.pop_all()

  def close(self) -> None:
    """Closes the files; what was not saved is dropped."""
    self._stack.close()

  @property
  def saved_round(self) -> int:
    """The round of the last checkpoint; -1 if there is none."""
    return self._saved

  def save(self) -> bool:
    """Checkpoints `state`, unless that is done; returns whether there was anything to do.

    Raises:
      SaveError: If it cannot be written; the checkpoint before stays.
    """
    if self.output_dir is None or self._saved == self.round_number:
      return False
    self.log.sync()  # The checkpoint relies on the rows behind it.
    self.store.commit(self.round_number, self.state, {'run_id': self._run_id})
    self._saved = self.round_number
    return True

  def _open(
    self,
    config: TrainingConfig,
    folder: str,
    client_state: Any,
    resume_from: ResumeFrom,
    stack: contextlib.ExitStack,
  ) -> None:
    path = config.checkpoint_path(folder)
    metrics = os.path.join(folder, metrics_lib.FILE)
    _check_places(folder, path)
    if not _is_there(path):
      _refuse_results_without_checkpoint(folder, path)
    for needed in (folder, os.path.dirname(path)):
      with _resuming(needed):
        os.makedirs(needed, exist_ok=True)
    self.store = sharded_store.open_store(
      path,
      client_state,
      config.client_state_store,
      cache_bytes=config.client_state_cache_bytes,
      keep_checkpoints=config.keep_checkpoints,
      workers=self._workers,
      notes=self.notes,
    )
    stack.callback(self.store.close)
    checkpoint = self.store.restore(self.state, resume_from)
    kept = None
    if checkpoint is not None:
      self._take_over(checkpoint, config, folder, path)
      kept = _rows_behind(metrics, self.round_number)
      self.store.forget_later(self.round_number)
    else:
      _refuse_results_without_checkpoint(folder, path)
    _forget_later_evaluations(folder, self.round_number)
    atomic_files.remove_leftovers(folder, _FILES)
    self.log = metrics_lib.MetricsLog(metrics, kept=kept)
    stack.callback(self.log.close)

  def _take_over(
    self, checkpoint: state_store.Checkpoint, config: TrainingConfig, folder: str, path: str
  ) -> None:
    if checkpoint.metadata.get('run_id', '') != self._run_id:
      raise StateError(f'{path} holds the checkpoint of another run.')
    if checkpoint.round_number > config.rounds:
      raise ResumeError(
        f'The run in {folder} has done {checkpoint.round_number} rounds already, rounds is'
        f' {config.rounds}: give at least {checkpoint.round_number}, or start in a new folder.'
      )
    self.state, self.round_number = checkpoint.server_state, checkpoint.round_number
    self._saved = self.round_number


def _check_places(folder: str, checkpoint_path: str) -> None:
  """Raises ResumeError if a folder is where a file of the run belongs, or a file where a folder."""
  files = [os.path.join(folder, name) for name in _FILES]
  for path in (*files, checkpoint_path):
    if os.path.isdir(path):
      raise ResumeError(f'{path} is a folder where a file of the run belongs: move it away.')
  for path in (folder, os.path.dirname(checkpoint_path), os.path.join(folder, 'tensorboard')):
    if os.path.lexists(path) and not os.path.isdir(path):
      raise ResumeError(f'{path} is a file where a folder of the run belongs: move it away.')


def _is_there(path: str) -> bool:
  """Whether there is a file with anything in it."""
  try:
    return os.path.getsize(path) > 0
  except FileNotFoundError:
    return False


def _refuse_results_without_checkpoint(folder: str, path: str) -> None:
  """Raises ResumeError if a folder has results of rounds; their checkpoint, `path`, is gone."""
  for name, has_any in ((metrics_lib.FILE, _has_rows), (summary.FILE, _has_rounds)):
    if has_any(folder):
      raise ResumeError(
        f'{os.path.join(folder, name)} has the results of a run, but its checkpoint, {path}, is'
        ' gone: bring it back, or start in a new folder.'
      )


def _has_rows(folder: str) -> bool:
  try:
    return bool(metrics_lib.read(os.path.join(folder, metrics_lib.FILE)).cells)
  except FileNotFoundError:
    return False
  except RunFileError:
    return True  # Something is there that nobody can read now, but perhaps repair.


def _has_rounds(folder: str) -> bool:
  try:
    return bool(summary.read(folder)['rounds'])
  except FileNotFoundError:
    return False
  except RunFileError:
    return os.path.getsize(os.path.join(folder, summary.FILE)) > 0


def _rows_behind(metrics: str, last_round: int) -> metrics_lib.Table | None:
  """Returns the rows up to the checkpoint's round, `last_round`; ResumeError if one is missing."""
  try:
    table = metrics_lib.read(metrics)
  except FileNotFoundError:
    table = metrics_lib.Table([], [])
  kept = [row for t, row in zip(table.rounds, table.cells) if t <= last_round]
  if not kept and last_round == 0:
    return None  # Killed between the first checkpoint and the first row.
  rounds = set(table.rounds)
  missing = next((t for t in range(last_round + 1) if t not in rounds), None)
  if missing is not None:
    raise ResumeError(
      f'{metrics} lacks round {missing}; the checkpoint has rounds 0 to {last_round} behind it:'
      ' restore the file, or start in a new folder.'
    )
  return metrics_lib.Table(table.columns, kept)


def _forget_later_evaluations(folder: str, last_round: int) -> None:
  """Removes evaluations by client of rounds that are to be trained again.

  Reports take the last one in the folder, and a changed `rounds_per_evaluation` leaves it there.
  """
  for path in glob.glob(os.path.join(glob.escape(folder), client_evaluation.FOLDER, 'round_*.csv')):
    number = os.path.basename(path).removeprefix('round_').removesuffix('.csv')
    if number.isdecimal() and int(number) > last_round:
      with _resuming(path):
        os.unlink(path)


@contextlib.contextmanager
def _resuming(path: str) -> Iterator[None]:
  """A context whose SaveErrors are ResumeErrors: nothing has begun."""
  try:
    with saving(path):
      yield
  except SaveError as error:
    raise ResumeError(str(error)) from None
