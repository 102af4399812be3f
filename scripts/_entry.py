"""Starts a command, which runs as a file of a checkout or by its installed name.

Only the standard library is imported before Ctrl-C is handled, so that it always ends a command
with one line. Python versions that the packages do not support can read this file, and are told.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import _streams

INTERRUPTED = 128 + signal.SIGINT
# The names of the commands that pip installs, by module.
NAMES = {
  'train': 'tff-adaptive-train',
  'sweep': 'tff-adaptive-sweep',
  'report': 'tff-adaptive-report',
  'partition_report': 'tff-adaptive-partition-report',
  'export': 'tff-adaptive-export',
  'replay': 'tff-adaptive-replay',
  'bench': 'tff-adaptive-bench',
}
started_as: str | None = None  # The installed name that started this process, if any.
interrupted = 'interrupted.'  # The message after Ctrl-C.
error_descriptor = 2  # Where to write it: 2 may stand for another file for a while.


def begin() -> None:
  """Handles Ctrl-C, and ends the process where the command cannot run. A command calls it first.

  Standard output and error may be closed, full or without a reader from then on.
  """
  if not (3, 10) <= sys.version_info < (3, 14):
    _refuse(
      f'{sys.executable} is Python {sys.version.split()[0]}: run make env (it needs CPython 3.10'
      f' to 3.13), then .venv/bin/python {sys.argv[0]}'
    )
  _streams.make_lenient()
  if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # A background job ignores it.
    signal.signal(signal.SIGINT, _end)
  atexit.register(let_tff_end)
  _show_about_the_installation()


def commands() -> dict[str, str]:
  """Returns how each command is started, by its module, in the way this one was."""
  if started_as is not None:
    return dict(NAMES)
  return {module: f'python scripts/{module}.py' for module in NAMES}


def _refuse(reason: str) -> None:
  sys.stderr.write(f'{os.path.basename(sys.argv[0])}: {reason}\n')
  sys.exit(2)


def _show_about_the_installation() -> None:
  """Ends the command after --version or --requirements, and where TFF cannot be imported.

  This comes before anything is imported that an incomplete environment may lack.
  """
  from tff_adaptive import _version
  from tff_adaptive.environment import check

  if '--version' in sys.argv[1:]:
    sys.stdout.write(f'tff-adaptive {_version.__version__}\n')
    sys.exit(0)
  if '--requirements' in sys.argv[1:]:
    from tff_adaptive.environment import install  # Slow to import and needed here only.

    sys.exit(install.main(['--requirements']))
  problem = check.missing_packages()
  if problem:
    _refuse(f'{problem}.')


def _end(unused_number: int, unused_frame: Any) -> None:
  """Ends the process at once, with a one-line message and exit code 130.

  A KeyboardInterrupt would show a traceback during an import, and a library might swallow it.
  """
  try:
    line = f'{os.path.basename(sys.argv[0])}: {interrupted}\n'
    os.write(error_descriptor, line.encode(errors='replace'))
    # Looked up and not imported: if the command has not loaded it, there are no workers.
    native = sys.modules.get('tff_adaptive.engine.native')
    if native is not None:  # TFF may have started workers.
      native.reap_workers()
    sys.stdout.flush()
  finally:
    # Not sys.exit, which raises: the signal may have come in the middle of an import.
    os._exit(INTERRUPTED)


def let_tff_end() -> None:
  """Lets Python take the modules of TensorFlow and TFF apart quietly, and quickly."""
  if 'tensorflow_federated' not in sys.modules:
    return
  # TFF's contexts would fail with a traceback. `engine.native` sees to that where it was used.
  if 'tff_adaptive.engine.native' not in sys.modules:
    from tff_adaptive._utils import private_apis

    private_apis.forget_workers()
  # The last collections would look at all objects, for two seconds; now they look at none.
  gc.freeze()


def _start(module: str) -> int:
  # Help and messages show commands in the way in which this one was started.
  global started_as
  started_as = NAMES[module]
  begin()
  return int(importlib.import_module(f'{__package__}.{module}').main())


def __getattr__(module: str) -> Callable[[], int]:
  """Returns a function that runs the command of a module, for the console scripts of pip."""
  if module not in NAMES:
    raise AttributeError(module)
  return functools.partial(_start, module)
