"""How commands import TensorFlow: no collection meanwhile, and none of its objects later."""

import gc
import importlib
import sys
import types

import pytest

from scripts.cli import tensorflow_start


@pytest.fixture
def imported(monkeypatch):
  """Has TFF not be imported; returns what is imported, and whether collections were enabled."""
  seen = []

  def import_module(name):
    seen.append((name, gc.isenabled()))
    return types.ModuleType(name)

  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  monkeypatch.setattr(importlib, 'import_module', import_module)
  yield seen
  gc.unfreeze()


def test_there_are_no_collections_while_it_is_imported_nor_of_its_objects_later(imported):
  assert gc.isenabled()
  gc.unfreeze()
  tensorflow_start.load()
  assert imported == [('tensorflow_federated', False)]
  assert gc.isenabled()
  assert gc.get_freeze_count() > 10_000


def test_what_is_imported_already_changes_nothing(imported, monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_federated', types.ModuleType('tff'))
  gc.unfreeze()
  tensorflow_start.load()
  assert imported == []
  assert gc.get_freeze_count() == 0


def test_an_import_that_fails_leaves_collections_on(imported, monkeypatch):
  def fail(name):
    raise ImportError(name)

  monkeypatch.setattr(importlib, 'import_module', fail)
  with pytest.raises(ImportError, match='tensorflow_federated'):
    tensorflow_start.load()
  assert gc.isenabled()


def test_a_program_without_collections_stays_so(imported):
  gc.disable()
  try:
    tensorflow_start.load()
    assert not gc.isenabled()
  finally:
    gc.enable()
