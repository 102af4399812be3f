"""How commands import TensorFlow: without collections then, and of its objects later."""

import gc
import importlib
import logging
import pathlib
import subprocess
import sys

import pytest

from scripts.cli import tensorflow_start

ROOT = pathlib.Path(__file__).parents[3]


def test_its_import_has_no_collections_and_what_it_says_is_news(monkeypatch):
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
  monkeypatch.setenv('TF_CPP_MIN_LOG_LEVEL', '3')
  of_tensorflow = logging.getLogger('tensorflow')
  monkeypatch.setattr(of_tensorflow, 'filters', [])
  tensorflow_start.quietly()
  for text, is_shown in (('Object was never used: x', False), ('x: overflow', True)):
    assert bool(of_tensorflow.filter(logging.makeLogRecord({'msg': text}))) == is_shown


_PROGRAM = """
import os, signal, sys
from scripts import _entry
from scripts.cli import tensorflow_start

_entry.begin()
absl = b'WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n'
start = b'I0000 00:00:1.1   12 port.cc:153] '
with tensorflow_start.without_notes():
  os.write(2, absl + start + b'oneDNN custom operations are on. You may see ...\\n')
  sys.stderr.write('from Python\\n')
  os.write(2, b'E0000 a real error\\n' + absl)
os.write(2, b'after\\n')
with tensorflow_start.without_notes():
  os.write(2, absl)
  if 'interrupted' in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
  sys.modules['tensorflow'] = None
with tensorflow_start.without_notes():
  os.write(2, absl)
"""
_ABSL = 'WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n'


@pytest.mark.parametrize(
  'arguments, code, last', [((), 0, _ABSL), (('interrupted',), 130, '-c: interrupted.\n')]
)
def test_notes_on_the_processor_are_left_out_and_all_else_is_shown(arguments, code, last):
  """Ctrl-C is answered at once, and nothing is hidden where TensorFlow was imported before."""
  done = subprocess.run(
    [sys.executable, '-c', _PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == code
  assert done.stderr == f'from Python\nE0000 a real error\nafter\n{last}'
