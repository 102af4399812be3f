"""For a command that is run as a file: `__package__ = __import__('_as_file').PACKAGE`.

Python then has this folder first in its search path, and knows of no package. Importing this module
puts the folder above there instead; with `__package__` set, relative imports work as in a module.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.dirname(_HERE)
PACKAGE = os.path.basename(_HERE)

importlib.import_module(f'{PACKAGE}._entry').begin()
