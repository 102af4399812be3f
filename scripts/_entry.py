"""How a command starts: from its file in a checkout, or by the name that pip installs.

Nothing but the standard library is imported before Ctrl-C is in hand, so that it ends a command in
one line from the first instant on.
"""

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
    'benchmark',
    'partition_report',
    'train_centralized',
    'export',
  )
}
started_as: str | None = None  # The name of these by which this process was started, if any.


def end_on_interrupt() -> None:
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


def _console(module: str) -> Callable[[], int]:
  """Returns what pip's console script calls: the `main` of a module of this package."""

  def start() -> int:
    global started_as
    started_as = NAMES[module]
    end_on_interrupt()
    return importlib.import_module(f'{__package__}.{module}').main()

  return start


train = _console('train')
sweep = _console('sweep')
report = _console('report')
benchmark = _console('benchmark')
partition_report = _console('partition_report')
train_centralized = _console('train_centralized')
export = _console('export')
