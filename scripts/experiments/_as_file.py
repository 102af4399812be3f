"""The same as the `_as_file.py` in the folder above, for the commands in this one."""

import importlib
import os
import sys

_SCRIPTS, _NAME = os.path.split(os.path.dirname(os.path.abspath(__file__)))
sys.path[0] = os.path.dirname(_SCRIPTS)
PACKAGE = f'{os.path.basename(_SCRIPTS)}.{_NAME}'

importlib.import_module(f'{os.path.basename(_SCRIPTS)}._entry').begin()
