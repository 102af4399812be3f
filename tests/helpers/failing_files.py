"""Writers that fail, as a full disk or a read-only file system would make them."""

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import metrics

_TFRecordWriter = tf.io.TFRecordWriter


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


class FailingWriter:
  """A writer of records like TensorFlow's, whose device is full after some bytes."""

  def __init__(self, path: bytes, room: int, error: tf.errors.OpError):
    self._writer = _TFRecordWriter(path)
    self._room = room
    self._error = error

  def write(self, record: bytes) -> None:
    if self._room < len(record):
      raise self._error
    self._room -= len(record)
    self._writer.write(record)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._writer, name)


@contextlib.contextmanager
def failing(kind: str, room: int, number: int = errno.ENOSPC) -> Iterator[None]:
  """A context without room for more than some bytes of 'metrics' or 'events', or for a file."""
  if kind == 'events':
    kind_of_error = tf.errors.FailedPreconditionError
    if number == errno.ENOSPC:
      kind_of_error = tf.errors.ResourceExhaustedError
    error = kind_of_error(None, None, f'/a/file; {os.strerror(number)}')
    writer = functools.partial(FailingWriter, room=room, error=error)
    with mock.patch.object(tf.io, 'TFRecordWriter', writer):
      yield
    return
  if kind == 'metrics':

    def opened(path: str, mode: str = 'r', **options: Any) -> Any:
      file = open(path, mode, **options)  # noqa: SIM115
      if mode == 'r':
        return file
      return FailingFile(file, room, number)

    with mock.patch.object(metrics, 'open', opened, create=True):
      yield
    return
  replace = os.replace

  def refuse(source: str, target: str) -> None:
    if os.path.basename(target) == kind:
      raise OSError(number, os.strerror(number))
    replace(source, target)

  with mock.patch.object(atomic_files.os, 'replace', refuse):
    yield
