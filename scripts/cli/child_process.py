"""Child processes that end with their parent, however it ends."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent(number: int = signal.SIGTERM) -> None:
  """Has the system send this process a signal when its parent ends; also a `preexec_fn`."""
  _libc.prctl(_PR_SET_PDEATHSIG, number)
