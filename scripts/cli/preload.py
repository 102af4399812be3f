"""Imports what every run needs, in the process that forks the runs; see worker.py.

TensorFlow computes nothing here, because its threads would not survive a fork.
"""

import atexit
import contextlib
import importlib
import os

from . import tensorflow_start

with contextlib.suppress(PermissionError):  # This process leads a session already.
  os.setsid()  # Ctrl-C reaches only the command, which then ends the runs.
atexit.register(os._exit, 0)  # Saves the time to free TFF's modules. Runs do not call it.
tensorflow_start.quietly()
tensorflow_start.load()
for name in ('tff_adaptive.training', 'tff_adaptive_tasks', 'matplotlib.backends.backend_agg'):
  importlib.import_module(name)
importlib.import_module('.build', __package__)
