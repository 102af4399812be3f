"""A run's folder: whether it can be used."""

import os
from typing import Any

from tff_adaptive.runs import config
from tff_adaptive.runs.errors import ResumeError


def check_writable(folder: str, flag: str = 'output_dir') -> None:
  """Refuses a folder, named by a flag, that cannot be made or written to; makes nothing."""
  path = os.path.abspath(folder)
  while not os.path.lexists(path):
    path = os.path.dirname(path)
  if not os.path.isdir(path):
    raise ValueError(f'--{flag}={folder}: {path} is not a folder; name another.')
  if not os.access(path, os.W_OK | os.X_OK):
    raise ValueError(f'--{flag}={folder}: {path} cannot be written to; name another folder.')


def read_config(folder: str, record: config.Record) -> dict[str, Any] | None:
  """Returns the config.json of the run in `folder`, which fits `record`; None if there is none."""
  found = record.check(folder)
  # What a start that was killed left behind of config.json is hidden.
  if found is None and os.path.isdir(folder) and any(n[0] != '.' for n in os.listdir(folder)):
    raise ResumeError(
      f'--output_dir={folder} is not empty and holds no {config.FILE}: name a new folder.'
    )
  return found
