"""What commands do before TensorFlow is imported, which takes seconds."""

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

# TFF's differential privacy imports these, and uses them in few of its mechanisms.
_SELDOM_USED = ('tensorflow_probability', 'dp_accounting.pld')


def quietly() -> None:
  """Has TensorFlow and TFF say nothing as they start; a level that the user chose stays."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
  logging.getLogger('tensorflow').addFilter(_is_news)


def load() -> None:
  """Imports TensorFlow and TFF, if nobody has yet, as quickly as they can be.

  Modules stay until the end. Looking for garbage among their million objects, time and again, is a
  fifth of a command's way to its first round; from here on collections leave them out. Those that
  are seldom used are run when they first are.
  """
  if 'tensorflow_federated' in sys.modules:
    return
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    with _deferring(_SELDOM_USED):
      importlib.import_module('tensorflow_federated')
    gc.freeze()
  finally:
    if was_enabled:
      gc.enable()


@contextlib.contextmanager
def _deferring(names: tuple[str, ...]) -> Iterator[None]:
  """A context in which an import of these modules runs them only once an attribute is asked for."""

  class Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
      spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name in names else None
      if spec is not None and spec.loader is not None:
        spec.loader = importlib.util.LazyLoader(spec.loader)
      return spec

  sys.meta_path.insert(0, Finder)
  try:
    yield
  finally:
    sys.meta_path.remove(Finder)


def _is_news(record: logging.LogRecord) -> bool:
  # TFF's secure sums make assertions that their graphs depend on without Python's seeing it; of an
  # exported model Keras says that it has not been evaluated.
  noise = ('Object was never used', 'compiled metrics have yet to be built')
  return not any(text in record.getMessage() for text in noise)
