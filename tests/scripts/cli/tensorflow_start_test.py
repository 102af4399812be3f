"""How commands import TensorFlow: without collections then, and of its objects later."""

import gc
import importlib
import logging
import sys

from scripts.cli import tensorflow_start


def test_its_import_has_no_collections_and_what_it_says_is_news(monkeypatch):
  seen = []
  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  monkeypatch.delitem(sys.modules, 'keras.engine', raising=False)  # The environment's None.
  monkeypatch.setattr(importlib, 'import_module', lambda name: seen.append((name, gc.isenabled())))
  gc.unfreeze()
  try:
    tensorflow_start.load()
    assert seen == [('tensorflow_federated', False)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    # While TFF is imported nothing may import Keras 3; afterwards a program may.
    assert sys.modules.get('keras.engine', 'absent') == 'absent'
  finally:
    gc.unfreeze()
  monkeypatch.setenv('TF_CPP_MIN_LOG_LEVEL', '3')
  of_tensorflow = logging.getLogger('tensorflow')
  monkeypatch.setattr(of_tensorflow, 'filters', [])
  tensorflow_start.quietly()
  for text, is_shown in (('Object was never used: x', False), ('x: overflow', True)):
    assert bool(of_tensorflow.filter(logging.makeLogRecord({'msg': text}))) == is_shown
