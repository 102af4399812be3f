"""Calls that leave their temporary folders, as those of killed processes do."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from unittest import mock


@contextlib.contextmanager
def temporary_folders_in(folder: str | os.PathLike[str]) -> Iterator[None]:
  """A context in which the system's folder for temporary files is another."""
  with mock.patch.object(tempfile, 'tempdir', str(folder)):
    yield


@contextlib.contextmanager
def before_folders_are_removed() -> Iterator[None]:
  """A context in which no folder is removed; its lock ends, as that of a killed process does."""
  with mock.patch.object(shutil, 'rmtree'):
    yield
