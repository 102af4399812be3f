"""Lets a command run as a file: `__package__ = __import__('_as_file').PACKAGE`.

A file that Python runs has its own folder first in the search path and belongs to no package.
Importing this module puts the parent folder there instead. With `__package__` set, relative imports
work as in a module.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.dirname(_HERE)
PACKAGE = os.path.basename(_HERE)

if not (3, 10) <= sys.version_info < (3, 14):
  sys.stderr.write(
    f'{os.path.basename(sys.argv[0])}: {sys.executable} is Python {sys.version.split()[0]}: run'
    f' make env (it needs CPython 3.10 to 3.13), then .venv/bin/python {sys.argv[0]}\n'
  )
  sys.exit(2)
importlib.import_module(f'{PACKAGE}._entry').begin()
