"""What the commands do as a run goes on."""

from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive.training import callbacks

from . import records, run_folder


class NoteChanges(callbacks.Callback):
  """Notes in config.json what a resumed run changes, once the checkpoint file is held."""

  def __init__(self, folder: str, record: records.Record):
    self._folder, self._record = folder, record

  def begin(self, run: callbacks.RunInfo) -> None:
    """Writes config.json if there is anything to note."""
    del run
    run_folder.note_changes(self._folder, self._record)


class StopAt(callbacks.Callback):
  """Asks for the end of a run at a round before its last; the same command goes on from there."""

  def __init__(self, last_round: int, request: Callable[[], None]):
    self._last_round, self._request = last_round, request

  def begin(self, run: callbacks.RunInfo) -> None:
    """Asks at once if the run is there already."""
    if run.first_round > self._last_round:
      self._request()

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Asks after that round."""
    if row['round'] >= self._last_round:
      self._request()


class HasBegun(callbacks.Callback):
  """Knows whether a run has begun: what fails from then on is no bad input.

  Attributes:
    value: Whether.
  """

  value = False

  def begin(self, run: callbacks.RunInfo) -> None:
    """Notes it."""
    del run
    self.value = True
