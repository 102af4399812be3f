"""Whether this machine has the C++ compiler that the compiled LSTM needs, and one that works."""

import os
import subprocess
import tempfile

import pytest


def _works():
  """One whose installation was cut off is there and finds no header, compiler proper or linker."""
  with tempfile.TemporaryDirectory() as folder:
    source, library = os.path.join(folder, 'a.cc'), os.path.join(folder, 'a.so')
    with open(source, 'w') as file:
      file.write('#include <string>\nstd::string given() { return "a"; }\n')
    try:
      compiled = subprocess.run(
        ['g++', '-shared', '-fPIC', source, '-o', library],
        stdin=subprocess.DEVNULL,
        capture_output=True,
      )
    except OSError:
      return False
    return compiled.returncode == 0


NEEDED = pytest.mark.skipif(not _works(), reason='there is no C++ compiler (g++) that works')
