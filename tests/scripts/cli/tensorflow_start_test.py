"""How commands import TensorFlow: without collections then and of it later, and not all of it."""

import gc
import importlib
import subprocess
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


@pytest.fixture
def seldom_used(tmp_path, monkeypatch):
  """A module that prints when it is run, and is seldom used."""
  (tmp_path / 'seldom.py').write_text('print("is run")\nvalue = 3\n')
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.setattr(tensorflow_start, '_SELDOM_USED', ('seldom',))
  yield
  sys.modules.pop('seldom', None)


def test_what_is_seldom_used_is_run_once_it_is_used(seldom_used, monkeypatch, capsys):
  monkeypatch.delitem(sys.modules, 'tensorflow_federated', raising=False)
  finders = list(sys.meta_path)
  with monkeypatch.context() as patched:
    patched.setattr(importlib, 'import_module', lambda unused_name: __import__('seldom'))
    tensorflow_start.load()
  gc.unfreeze()
  assert capsys.readouterr().out == ''
  assert sys.modules['seldom'].value == 3
  assert capsys.readouterr().out == 'is run\n'
  assert sys.meta_path == finders


DIGITS = """
import sys
from scripts import train
code = train.main(['train.py', '--task=digits', '--rounds=1', '--output_dir=RUN'])
late = ('tensorflow_probability', 'dp_accounting.pld')
kinds = [type(sys.modules[name]).__name__ for name in late]
import tensorflow_probability
from dp_accounting.pld import privacy_loss_distribution
kinds.append(tensorflow_probability.distributions.Normal(0.0, 1.0).event_shape.rank)
kinds.append(privacy_loss_distribution.from_gaussian_mechanism(1.0).get_epsilon_for_delta(0.5))
print(code, kinds)
"""


def test_a_run_without_noise_never_needs_them(tmp_path):
  program = DIGITS.replace('RUN', str(tmp_path / 'run'))
  ended = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
  assert ended.stdout.splitlines()[-1] == "0 ['_LazyModule', '_LazyModule', 0, 0]", ended.stderr
