"""Stores in a run's folder the user's own Python files, so that the run can be repeated later."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import atomic_files, user_files
from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks


class StoreFiles(callbacks.Callback):
  """A callback that copies the user's files into the run's folder when the run begins.

  `files` is that of `runs.config.Record`. Modules that a file imports are copied too, to where the
  copy finds them. A file that has been changed since it was loaded is not copied.
  """

  def __init__(self, files: Mapping[str, Mapping[str, Any]]):
    """Creates the callback."""
    self._files = files

  def begin(self, run: callbacks.RunInfo) -> None:
    """Copies the files that are not there yet."""
    if run.output_dir is None:
      return
    for flag, entry in self._files.items():
      if not user_files.is_python(entry):
        continue
      folder = os.path.join(run.output_dir, os.path.dirname(user_files.place_of_copy(flag, entry)))
      for path, sha256, place in user_files.parts(entry):
        target = os.path.join(folder, place)
        if user_files.digest(target) == sha256:
          continue
        if user_files.digest(path) != sha256:
          run.say(f'{path!r} has been changed since it was loaded: the run has no copy of it.')
          continue
        _copy(path, target)


def _copy(path: str, target: str) -> None:
  with saving(target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with atomic_files.atomic_path(target) as temporary:
      shutil.copyfile(path, temporary)
