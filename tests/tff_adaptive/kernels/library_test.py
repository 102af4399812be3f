"""Compiling the library, keeping it, and what happens where that cannot be done."""

import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import compiler, fresh
from tff_adaptive.kernels import library

CHILD = """
import sys
import numpy as np
import tensorflow as tf
from tff_adaptive.kernels import library, lstm

if sys.argv[2:]:
  library._cpu_flags = lambda: set(sys.argv[2:])
rng = np.random.default_rng(0)
z, r = rng.normal(size=(20, 4 * 37)), rng.normal(size=(37, 4 * 37)) * 0.2
z, r = (tf.constant(a, tf.float32) for a in (z, r))
with tf.GradientTape() as tape:
  tape.watch([z, r])
  h = lstm.recurrence(z, r, 5)
  total = tf.reduce_sum(h * h)
np.savez(sys.argv[1], h, *tape.gradient(total, [z, r]))
"""

KILLED = """
import os, pathlib, signal, sys
from tff_adaptive.kernels import library

def run(command):
  pathlib.Path(command[-1]).write_text('half')
  os.kill(os.getpid(), signal.SIGKILL)

library._run = run
library._compiled([], pathlib.Path(sys.argv[1]), 'operations-of-another-version.so')
"""


@compiler.NEEDED
@pytest.mark.skipif('avx512bw' not in library._cpu_flags(), reason='the processor has no AVX-512')
@pytest.mark.exhaustive
def test_vectors_of_8_and_of_16_give_the_same_bits(tmp_path):
  """Each in a process of its own, which writes what it gets to a file."""
  results = []
  for flags in ((), ('avx2', 'fma')):
    command = [*fresh.python(), '-c', CHILD, str(tmp_path / 'found.npz'), *flags]
    subprocess.run(command, check=True, env={**os.environ, 'XDG_CACHE_HOME': str(tmp_path)})
    with np.load(tmp_path / 'found.npz') as file:
      results.append([file[name] for name in file.files])
  np.testing.assert_equal(*results)
  assert len(list((tmp_path / 'tff_adaptive').iterdir())) == 2


@pytest.fixture
def compiled(tmp_path, monkeypatch):
  """The commands of a compiler that writes a text, which is all that is loaded of a library."""
  commands = []

  def run(command):
    if '-o' in command:
      commands.append(command)
      pathlib.Path(command[-1]).write_text('code')
    return 'version'

  monkeypatch.setattr(library, '_run', run)
  monkeypatch.setattr(library, '_loaded', lambda path: path.read_bytes()[:4])
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  return commands


def test_it_is_compiled_once(tmp_path, compiled):
  assert library._load.__wrapped__() == library._load.__wrapped__() == b'code'
  assert len(compiled) == 1
  assert len(list((tmp_path / 'cache' / 'tff_adaptive').iterdir())) == 1


def test_what_a_killed_compilation_left_is_removed_by_the_next(tmp_path, compiled):
  folder = tmp_path / 'cache' / 'tff_adaptive'
  folder.mkdir(parents=True, mode=0o700)
  ended = subprocess.run([sys.executable, '-c', KILLED, str(folder)], check=False)
  assert ended.returncode == -signal.SIGKILL
  assert len(os.listdir(folder)) == 1
  assert library._load.__wrapped__() == b'code'
  (name,) = os.listdir(folder)
  assert name.startswith('operations-')


@pytest.mark.parametrize('what', ['no folder', 'not ours alone', 'full', 'nothing is run there'])
def test_a_folder_that_cannot_be_used_is_not_needed(what, tmp_path, compiled, monkeypatch):
  base = tmp_path / 'cache'
  folder = base / 'tff_adaptive'
  if what == 'no folder':
    base.write_text('')
  elif what == 'not ours alone':
    folder.mkdir(parents=True)
    folder.chmod(0o777)
  else:
    if what == 'full':
      name = '_run'
      error = OSError
    else:
      name = '_loaded'
      error = library.KernelError
    works = getattr(library, name)

    def fails_there(given):
      if str(folder) in str(given):
        raise error('not there')
      return works(given)

    monkeypatch.setattr(library, name, fails_there)
  assert library._load.__wrapped__() == b'code'
  assert what == 'no folder' or not list(folder.iterdir())


@pytest.mark.parametrize(
  'command, reason',
  [
    ('/nowhere/g++', "'/nowhere/g\\+\\+' cannot be run"),
    ('false', "'false' failed"),
    ('true', 'cannot be loaded'),  # It makes nothing.
    (None, 'failed \\(tensorflow/c/ops.h: not found\\)'),
  ],
)
def test_without_a_compiler_the_error_says_what_to_do(command, reason, tmp_path, monkeypatch):
  script = tmp_path / 'c++'
  text = '[ "$1" = --version ] && exit 0; echo "tensorflow/c/ops.h: not found" >&2; exit 1'
  script.write_text(f'#!/bin/sh\n{text}\n')
  script.chmod(0o755)
  monkeypatch.setenv('CXX', command or str(script))
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  with pytest.raises(library.KernelError, match=f'{reason}.*install g\\+\\+, .*lstm=compiled'):
    library._load.__wrapped__()
  assert not list(tmp_path.rglob('*operations-*'))


def test_the_folder_is_the_users_alone(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'new'))
  folder = library.cache_folder()
  assert folder == tmp_path / 'new' / 'tff_adaptive'
  assert folder.stat().st_mode & 0o777 == 0o700
  for mode, expected in ((0o755, folder), (0o775, None), (0o707, None)):
    folder.chmod(mode)
    assert library.cache_folder() == expected
  folder.chmod(0o700)
  folder.rename(tmp_path / 'elsewhere')
  folder.symlink_to(tmp_path / 'elsewhere')
  assert library.cache_folder() is None
  folder.unlink()
  monkeypatch.setattr(os, 'geteuid', lambda: 12345)
  assert library.cache_folder() is None
  monkeypatch.undo()
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('XDG_CACHE_HOME', 'here')
  assert library.cache_folder() is None
  assert not (tmp_path / 'here').exists()
