"""Imports what every trial needs, in the process that forks the processes of a sweep.

TensorFlow computes nothing here, because its threads would not survive a fork.
"""

import atexit
import contextlib
import importlib
import os

from .. import _entry
from . import tensorflow_start

with contextlib.suppress(PermissionError):  # This process leads a session already.
  os.setsid()  # Ctrl-C reaches only the command, which then ends the trials.
tensorflow_start.quietly()
atexit.register(_entry.let_tff_end)
tensorflow_start.load()
for name in ('tff_adaptive.training', 'tff_adaptive_tasks', 'matplotlib.backends.backend_agg'):
  importlib.import_module(name)
for name in ('.build', '.search'):
  importlib.import_module(name, __package__)
