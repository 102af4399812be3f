"""Ends a run on Ctrl-C, SIGTERM or SIGHUP: the first signal after the round, the second at once."""

import contextlib
import os
import signal
import threading
import types
from collections.abc import Callable

from tff_adaptive.training import protocols

from . import command

# SIGHUP comes when the terminal is closed or its connection is lost.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopGuard(protocols.Stop):
  """A context in which SIGINT, SIGTERM and SIGHUP request the end of the run and do not kill it.

  A SIGHUP that is ignored, as under nohup, stays ignored.

  The first signal sets `requested`, and `exit_code` to 128 + its number. The training loop finishes
  its round, saves and returns. The second signal ends the process at once with this exit code.
  Rounds since the last checkpoint are then lost, and nothing else.

  A thread receives the signals through `signal.set_wakeup_fd`, because Python's own handlers would
  wait until a TensorFlow call returns, which may take a whole round.
  """

  def __init__(self, *on_abort: Callable[[], None]):
    """Creates the guard. `on_abort` functions run before the second signal ends the process."""
    super().__init__()
    self.on_abort += on_abort
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'StopGuard':
    if threading.current_thread() is not threading.main_thread():
      return self  # Only the main thread may set handlers; signals then act as usual.
    reader, writer = os.pipe()
    # As `signal.set_wakeup_fd` asks for.
    os.set_blocking(writer, False)
    self._stack.callback(os.close, reader)
    thread = threading.Thread(target=self._listen, args=(reader,), daemon=True)
    thread.start()
    self._stack.callback(thread.join)
    self._stack.callback(os.close, writer)
    self._stack.callback(os.write, writer, b'\0')  # Ends the thread: a forked child keeps the pipe.
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    self._stack.callback(signal.set_wakeup_fd, before)
    for number in SIGNALS:
      if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
        continue
      self._stack.callback(signal.signal, number, signal.signal(number, _ignore))
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self._stack.close()

  def _listen(self, reader: int) -> None:
    while True:
      number = ord(os.read(reader, 1))
      if number == 0:  # The guard is left.
        return
      if number not in SIGNALS:
        continue
      if not self.exit_code:
        # Before `requested`, at which the loop looks first.
        self.exit_code = 128 + number
        self.requested = True
        with contextlib.suppress(OSError):  # The reader of stderr may be gone.
          line = 'Ending and saving after this round. A second signal ends the run at once.'
          (self.announce or command.say)(line)
      else:
        try:
          for function in self.on_abort:
            function()
        finally:
          os._exit(self.exit_code)


def _ignore(unused_number: int, unused_frame: types.FrameType | None) -> None:
  """A handler that does nothing, because a thread handles the signals."""
