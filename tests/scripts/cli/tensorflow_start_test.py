"""How commands import TensorFlow: without collections then, and of its objects later."""

import gc
import importlib
import sys

import pytest

from scripts.cli import tensorflow_start


def test_there_are_no_collections_while_it_is_imported_nor_of_its_objects_later(monkeypatch):
  seen = []

  def import_module(name):
    seen.append((name, gc.isenabled()))
    if len(seen) == 1:
      raise ImportError(name)

  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  monkeypatch.setattr(importlib, 'import_module', import_module)
  gc.unfreeze()
  try:
    with pytest.raises(ImportError, match='tensorflow_federated'):
      tensorflow_start.load()
    assert gc.isenabled()
    assert gc.get_freeze_count() < 10_000
    tensorflow_start.load()
    assert seen == [('tensorflow_federated', False)] * 2
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
  finally:
    gc.unfreeze()
