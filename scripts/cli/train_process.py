"""Trains in a process of its own, which ends with this one."""

import os
import signal
import subprocess
import sys
from typing import Any

from . import child_process, flags
from .settings import Settings

_TRAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'train.py')


def train(settings: Settings) -> tuple[int, int | None]:
  """Runs train.py; returns its exit code, and the signal that stopped this process meanwhile.

  The run has a session of its own, so that Ctrl-C reaches it once: through this process. It ends,
  after saving, with this process, however that ends.
  """
  received: list[int] = []
  child: subprocess.Popen[bytes] | None = None

  def forward(number: int, unused_frame: Any) -> None:
    received.append(number)
    if child is not None:
      child.send_signal(number)

  before = [(n, signal.signal(n, forward)) for n in (signal.SIGINT, signal.SIGTERM)]
  try:
    child = subprocess.Popen(
      [sys.executable, _TRAIN, *flags.command_line(settings.given)],
      start_new_session=True,
      preexec_fn=child_process.end_with_parent,
    )
    if received:  # While it was started.
      child.send_signal(received[0])
    code = child.wait()
  finally:
    for number, handler in before:
      signal.signal(number, handler)
  return code, received[0] if received else None
