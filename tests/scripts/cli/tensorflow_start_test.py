"""How commands import TensorFlow: without collections then, and of its objects later."""

import gc
import importlib
import sys

from scripts.cli import tensorflow_start


def test_there_are_no_collections_while_it_is_imported_nor_of_its_objects_later(monkeypatch):
  seen = []
  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  monkeypatch.setattr(importlib, 'import_module', lambda name: seen.append((name, gc.isenabled())))
  gc.unfreeze()
  try:
    tensorflow_start.load()
    assert seen == [('tensorflow_federated', False)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
  finally:
    gc.unfreeze()
