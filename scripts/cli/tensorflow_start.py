"""Prepares and performs the import of TensorFlow, which takes seconds."""

import gc
import importlib
import logging
import os
import sys
import warnings


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
  # tensorflow-model-optimization would import Keras 3 to find out that it has no module `engine`.
  is_asked_for = 'keras.engine' not in sys.modules
  if is_asked_for:
    sys.modules['keras.engine'] = None  # type: ignore[assignment]
  try:
    importlib.import_module('tensorflow_federated')
    gc.freeze()
  finally:
    gc.enable()
    if is_asked_for:
      del sys.modules['keras.engine']


def _is_news(record: logging.LogRecord) -> bool:
  # The first message is wrong: the graphs of TFF's secure sums use the assertions that it is about.
  # Keras gives the second for exported models, which need not be evaluated.
  noise = ('Object was never used', 'compiled metrics have yet to be built')
  return not any(text in record.getMessage() for text in noise)
