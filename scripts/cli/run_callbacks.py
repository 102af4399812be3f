"""What the commands do as a run goes on."""

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
