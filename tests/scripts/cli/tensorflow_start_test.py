"""How commands import TensorFlow: without collections then, and of its objects later."""

import gc
import importlib
import sys

import pytest

from scripts.cli import tensorflow_start


@pytest.mark.parametrize('fails', [False, True])
def test_there_are_no_collections_while_it_is_imported_nor_of_its_objects_later(fails, monkeypatch):
  seen = []

  def import_module(name):
    seen.append((name, gc.isenabled()))
    if fails:
      raise ImportError(name)

  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  monkeypatch.setattr(importlib, 'import_module', import_module)
  gc.unfreeze()
  try:
    if fails:
      with pytest.raises(ImportError, match='tensorflow_federated'):
        tensorflow_start.load()
    else:
      tensorflow_start.load()
    assert seen == [('tensorflow_federated', False)]
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 10_000) == (not fails)
  finally:
    gc.unfreeze()
