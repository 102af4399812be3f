"""What is done around `ray.init`, which takes over signals, waits in silence, and prints."""

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Iterator

from tff_adaptive.execution.cluster import local_ray

_FLUSH_SECONDS = 5.0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Keeps Ray's core in this process from printing that nobody collects its metrics.

  It takes the level of its messages from the environment, and prints that it does, to file
  descriptor 2: this line is left out of what is printed meanwhile.
  """
  stderr = os.dup(2)
  end, start = os.pipe()
  os.dup2(start, 2)
  os.close(start)

  def forward() -> None:
    with open(end, 'rb') as lines:
      for line in lines:
        if b'Set ray log level' not in line:
          os.write(stderr, line)

  forwarder = threading.Thread(target=forward, daemon=True)
  forwarder.start()
  level = os.environ.get('RAY_BACKEND_LOG_LEVEL', 'fatal')
  try:
    with local_ray.environment({'RAY_BACKEND_LOG_LEVEL': level}):
      yield
  finally:
    os.dup2(stderr, 2)  # The pipe closes, unless a process that was started holds it.
    forwarder.join(_FLUSH_SECONDS)
    if not forwarder.is_alive():
      os.close(stderr)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
  """Keeps what a program does at SIGTERM: Ray would put its own in place."""
  is_main = threading.current_thread() is threading.main_thread()
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    if is_main:
      signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def hint_after(seconds: float, address: str) -> Iterator[None]:
  """Says what may be wrong while a cluster does not answer: Ray waits long, and says nothing."""

  def hint() -> None:
    warnings.warn(
      f'still waiting for the Ray cluster at {address!r}: is it there, and is its token here'
      ' (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH)?',
      stacklevel=1,
    )

  timer = threading.Timer(seconds, hint)
  timer.daemon = True
  if address != 'local':
    timer.start()
  try:
    yield
  finally:
    timer.cancel()
