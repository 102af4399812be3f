"""Ending a run on Ctrl-C or SIGTERM: the first asks, the second insists."""

import contextlib
import os
import signal
import threading
import types
from collections.abc import Callable

from tff_adaptive.training import protocols

from . import command

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopGuard(protocols.Stop):
  """A context in which SIGINT and SIGTERM ask for the end of the run instead of ending it.

  The first signal sets `requested`, and `exit_code` to 128 + its number; the training loop
  finishes its round, saves and returns. The second ends the process at once, with that exit code;
  what was not checkpointed is lost and nothing else is harmed.

  The signals are heard by a thread, through `signal.set_wakeup_fd`: Python's own handlers
  would wait until a TensorFlow call, which may take a whole round, returns.
  """

  def __init__(self, on_abort: Callable[[], None] = lambda: None):
    """Creates the guard.

    Args:
      on_abort: Called before the process is ended at once, to end child processes, say.
    """
    super().__init__()
    self._on_abort, self._stack = on_abort, contextlib.ExitStack()

  def __enter__(self) -> 'StopGuard':
    if threading.current_thread() is not threading.main_thread():
      return self  # Only the main thread may set handlers; signals then act as usual.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    self._stack.callback(os.close, reader)
    thread = threading.Thread(target=self._listen, args=(reader,), daemon=True)
    thread.start()
    self._stack.callback(thread.join)
    self._stack.callback(os.close, writer)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    self._stack.callback(signal.set_wakeup_fd, before)
    for number in SIGNALS:
      self._stack.callback(signal.signal, number, signal.signal(number, _ignore))
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self._stack.close()

  def _listen(self, reader: int) -> None:
    while heard := os.read(reader, 1):  # At its end the guard is being left.
      if (number := heard[0]) not in SIGNALS:
        continue
      if not self.exit_code:
        self.exit_code = 128 + number
        self.requested = True
        with contextlib.suppress(OSError):  # Nobody may read it any more.
          command.say('Ending after this round; the run is saved. Once more ends it at once.')
      else:
        try:
          self._on_abort()
        finally:
          os._exit(self.exit_code)


def _ignore(unused_number: int, unused_frame: types.FrameType | None) -> None:
  """A handler that leaves everything to the listening thread."""
