"""Says where a run's state file is, and whether SQLite can open a file there."""

import os

from tff_adaptive.runs import errors

_LONGEST_PATH = 504  # Bytes. SQLite's limit is 512, with the ending of the journal.


def path(folder: str) -> str:
  """Returns the path of the state file of the run in a folder."""
  return os.path.join(folder, 'checkpoints', 'state.sqlite')


def check_length(folder: str) -> None:
  """Raises ResumeError if the path of a run's folder is too long for SQLite."""
  whole = path(os.path.realpath(folder))
  too_many = len(os.fsencode(whole)) - _LONGEST_PATH
  if too_many > 0:
    raise errors.ResumeError(
      f'the path of the folder {folder} is too long by {too_many} bytes: with'
      f' {path("")} it may have {_LONGEST_PATH}, the limit of SQLite. Name another folder.'
    )
