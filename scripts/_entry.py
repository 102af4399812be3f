"""How a command starts: from its file in a checkout, or by the name that pip installs.

Nothing but the standard library is imported before Ctrl-C is in hand, so that it ends a command in
one line from the first instant on.
"""

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
# The names that pip installs, by the module that each starts.
NAMES = {
  module: f'tff-adaptive-{module.replace("_", "-")}'
  for module in (
    'train',
    'sweep',
    'report',
    'partition_report',
    'train_centralized',
    'export',
  )
}
started_as: str | None = None  # The name of these by which this process was started, if any.
exit_code: int | None = None  # With which the command has ended, once it has.


def begin() -> None:
  """What a command's process does first: it has Ctrl-C, and its own end, in hand."""
  _end_on_interrupt()
  atexit.register(_leave)  # The first that is registered is the last that is called.


def _end_on_interrupt() -> None:
  """Has SIGINT end the process at once, with a line and exit code 130, until others handle it.

  A KeyboardInterrupt in the midst of an import would show a traceback. Where SIGINT is ignored, as
  of a background job, it stays so.
  """
  if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, _end)


def _end(unused_number: int, unused_frame: Any) -> None:
  name = os.fsencode(os.path.basename(sys.argv[0]))
  os.write(2, name + b': interrupted.\n')
  os._exit(INTERRUPTED)


def _leave() -> None:
  """Ends the process of a command that has ended, its modules as they are.

  To take TensorFlow's and TFF's modules apart, object by object, takes Python 1.5 s.
  """
  if exit_code is None:  # An exception of which Python reports.
    return
  try:
    sys.stdout.flush()
    sys.stderr.flush()
  except (OSError, ValueError):  # Closed by its reader: Python reports that too.
    return
  os._exit(exit_code)


def _console(module: str) -> Callable[[], int]:
  """Returns what pip's console script calls: the `main` of a module of this package."""

  def start() -> int:
    global started_as
    started_as = NAMES[module]
    begin()
    return importlib.import_module(f'{__package__}.{module}').main()

  return start


train = _console('train')
sweep = _console('sweep')
report = _console('report')
partition_report = _console('partition_report')
train_centralized = _console('train_centralized')
export = _console('export')
