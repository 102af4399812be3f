"""Says where a run's state file is, and whether SQLite can open a file there."""

import os

from tff_adaptive.runs import errors

_LONGEST_PATH = 504  # Bytes. SQLite's limit is 512, with the ending of the journal.
_FILE = os.path.join('checkpoints', 'state.sqlite')


def path(folder: str) -> str:
  """Returns the path of the state file of the run in a folder."""
  return os.path.join(folder, _FILE)


def check_length(folder: str, file: str = _FILE) -> None:
  """Raises ResumeError if the path of a folder is too long for SQLite, with a file in it."""
  whole = os.path.join(os.path.realpath(folder), file)
  too_many = len(os.fsencode(whole)) - _LONGEST_PATH
  if too_many > 0:
    raise errors.ResumeError(
      f'the path of the folder {folder} is too long by {too_many} bytes: with'
      f' {file} it may have {_LONGEST_PATH}, the limit of SQLite. Name another folder.'
    )
