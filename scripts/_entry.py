"""Starts and ends a command, which runs as a file of a checkout or by its installed name.

Only the standard library is imported before Ctrl-C is handled, so that it always ends a command
with one line.
"""

import atexit
import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import _streams

INTERRUPTED = 128 + signal.SIGINT
# The names of the commands that pip installs, by module.
_MODULES = 'train sweep report partition_report export'
NAMES = {module: f'tff-adaptive-{module.replace("_", "-")}' for module in _MODULES.split()}
started_as: str | None = None  # The installed name that started this process, if any.
exit_code: int | None = None  # The exit code of the command, once it has ended.
interrupted = 'interrupted.'  # The message after Ctrl-C.
# Whether the text on standard output is the result. If it is lost, the command has failed.
prints_result = False


def begin() -> None:
  """Installs the handlers of Ctrl-C and of the end of the process. A command calls it first.

  Standard output and error may be closed, full or without a reader from then on.
  """
  _streams.make_lenient()
  if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # A background job ignores it.
    signal.signal(signal.SIGINT, _end)
  atexit.register(_leave)  # Exit functions run in reverse order: this one last.
  _show_about_the_installation()


def _show_about_the_installation() -> None:
  """Ends the command after --version or --requirements, and where TFF cannot be imported.

  This comes before anything is imported that an incomplete environment may lack.
  """
  from tff_adaptive import _version
  from tff_adaptive.environment import check, install

  if '--version' in sys.argv[1:]:
    sys.stdout.write(f'tff-adaptive {_version.__version__}\n')
    sys.exit(0)
  if '--requirements' in sys.argv[1:]:
    sys.exit(install.main(['--requirements']))
  problem = check.missing_packages()
  if problem:
    sys.stderr.write(f'{os.path.basename(sys.argv[0])}: {problem}.\n')
    sys.exit(2)


def _end(unused_number: int, unused_frame: Any) -> None:
  """Ends the process at once, with a one-line message and exit code 130.

  A KeyboardInterrupt would show a traceback during an import, and a library might swallow it.
  """
  try:
    os.write(2, f'{os.path.basename(sys.argv[0])}: {interrupted}\n'.encode(errors='replace'))
    native = sys.modules.get('tff_adaptive.engine.native')
    if native is not None:  # TFF may have started workers.
      native.reap_workers()
    sys.stdout.flush()
  finally:
    os._exit(INTERRUPTED)


def _leave() -> None:
  """Ends the process of a finished command without freeing its modules.

  Python would take 1.5 s to free the objects of TensorFlow and TFF.
  """
  if exit_code is None:  # An exception ended the command; Python reports it.
    return
  code = exit_code
  lost = _streams.output_error()
  if lost is not None and prints_result:
    program = started_as or os.path.basename(sys.argv[0])
    sys.stderr.write(f'{program}: the result cannot be written: {lost.strerror}.\n')
    code = code or 1
  with contextlib.suppress(OSError, ValueError):  # Streams that a user's file has replaced.
    sys.stdout.flush()
    sys.stderr.flush()
  os._exit(code)


def _start(module: str) -> int:
  global started_as
  started_as = NAMES[module]
  begin()
  return int(importlib.import_module(f'{__package__}.{module}').main())


def __getattr__(module: str) -> Callable[[], int]:
  """Returns a function that runs the command of a module, for the console scripts of pip."""
  if module not in NAMES:
    raise AttributeError(module)
  return functools.partial(_start, module)
