"""Prepares and performs the import of TensorFlow, which takes seconds."""

import gc
import importlib
import logging
import os
import sys
import warnings


def quietly() -> None:
  """Silences TensorFlow and TFF at their start; a log level that the user chose is kept."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
  logging.getLogger('tensorflow').addFilter(_is_news)


def load() -> None:
  """Imports TensorFlow and TFF; garbage collection then ignores their objects, which stay."""
  if 'tensorflow_federated' in sys.modules:
    return
  gc.disable()
  try:
    importlib.import_module('tensorflow_federated')
    gc.freeze()
  finally:
    gc.enable()


def _is_news(record: logging.LogRecord) -> bool:
  # TFF's secure sums make assertions that their graphs depend on without Python's seeing it; of an
  # exported model Keras says that it has not been evaluated.
  noise = ('Object was never used', 'compiled metrics have yet to be built')
  return not any(text in record.getMessage() for text in noise)
