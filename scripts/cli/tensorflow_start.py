"""Prepares and performs the import of TensorFlow, which takes seconds."""

import contextlib
import gc
import importlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator

from .. import _entry

# What TensorFlow 2.21 writes when it is imported, whatever TF_CPP_MIN_LOG_LEVEL is, on processors
# on which it uses oneDNN.
_NOTES = re.compile(
  rb'WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR\n'
  rb'|I\d{4} [^\n]*\] oneDNN custom operations are on\.[^\n]*\n'
)


def quietly() -> None:
  """Silences the start of TensorFlow and TFF, but keeps a log level that the user chose."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
  logging.getLogger('tensorflow').addFilter(_is_news)


def load() -> None:
  """Imports TensorFlow and TFF, and exempts their permanent objects from garbage collection."""
  if 'tensorflow_federated' in sys.modules:
    return
  gc.disable()
  try:
    with without_notes():
      importlib.import_module('tensorflow_federated')
    gc.freeze()
  finally:
    gc.enable()


def load_tensorflow() -> None:
  """Imports TensorFlow alone, before work whose output on standard error must not wait."""
  with without_notes():
    importlib.import_module('tensorflow')


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
  """A context in which TensorFlow may be imported, without its notes on the processor.

  Native code writes them to the file descriptor of standard error. What else is written there is
  shown when the context ends. If TensorFlow has been imported already, the context changes nothing.
  """
  if 'tensorflow' in sys.modules:
    yield
    return
  with contextlib.ExitStack() as stack:
    try:
      written = stack.enter_context(tempfile.TemporaryFile())
      stderr = os.dup(2)
    except OSError:  # Nowhere to keep it, or there is no standard error.
      yield
      return
    stack.callback(os.close, stderr)
    _flush()
    os.dup2(written.fileno(), 2)
    _entry.error_descriptor = stderr
    try:
      yield
    finally:
      _flush()
      os.dup2(stderr, 2)
      _entry.error_descriptor = 2
      written.seek(0)
      with contextlib.suppress(OSError):  # It is full, or nobody reads it.
        os.write(2, _NOTES.sub(b'', written.read()))


def _flush() -> None:
  """Writes what Python's standard error has in its buffer."""
  with contextlib.suppress(AttributeError, OSError, ValueError):  # It is None, or closed.
    sys.stderr.flush()


def _is_news(record: logging.LogRecord) -> bool:
  # The first message is wrong: the graphs of TFF's secure sums use the assertions that it is about.
  # Keras gives the second for exported models, which need not be evaluated.
  noise = ('Object was never used', 'compiled metrics have yet to be built')
  return not any(text in record.getMessage() for text in noise)
