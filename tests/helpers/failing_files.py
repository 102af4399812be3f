"""Writers that fail, as a full disk or a read-only file system would make them."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import metrics
from tff_adaptive.training import tensorboard_log


class FailingFile:
  """An unbuffered file whose device is full after some bytes: it takes a part of the last write."""

  def __init__(self, file: Any, room: int, number: int):
    self._file = file
    self._room = room
    self._number = number

  def write(self, data: bytes) -> int:
    if not self._room:
      raise OSError(self._number, os.strerror(self._number))
    taken = self._file.write(data[: self._room])
    self._room -= taken
    return taken

  def __getattr__(self, name: str) -> Any:
    return getattr(self._file, name)


@contextlib.contextmanager
def failing(kind: str, room: int, number: int = errno.ENOSPC) -> Iterator[None]:
  """A context without room for more than some bytes of 'metrics' or 'events', or for a file."""
  if kind in ('metrics', 'events'):
    if kind == 'metrics':
      module = metrics
    else:
      module = tensorboard_log

    def opened(path: str, mode: str = 'r', **options: Any) -> Any:
      file = open(path, mode, **options)  # noqa: SIM115
      if mode == 'r':
        return file
      return FailingFile(file, room, number)

    with mock.patch.object(module, 'open', opened, create=True):
      yield
    return
  replace = os.replace

  def refuse(source: str, target: str) -> None:
    if os.path.basename(target) == kind:
      raise OSError(number, os.strerror(number))
    replace(source, target)

  with mock.patch.object(atomic_files.os, 'replace', refuse):
    yield
