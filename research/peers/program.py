"""Runs a program of another library as it stands, on one thread, in that library's environment.

usage: PYTHON -m research.peers.program FILE.py [ARGUMENT ...]
"""

import os
import runpy
import sys
from collections.abc import Callable


def run(change: Callable[[], None] = lambda: None) -> None:
  """Runs the program that the command line names.

  Args:
    change: Called before, when the program's modules can be imported.
  """
  from research.peers import operators

  operators.torch.set_num_threads(1)
  program = os.path.abspath(sys.argv[1])
  sys.argv = sys.argv[1:]
  sys.path.insert(0, os.path.dirname(program))  # As if the file had been started.
  change()
  runpy.run_path(program, run_name='__main__')


if __name__ == '__main__':
  run()
