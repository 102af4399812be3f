"""The processes in which runs are done, as they are seen from the command."""

import contextlib
import dataclasses
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from . import child_process, worker

WORKER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), '_worker.py')
_MOST_RUNS = 100  # Of a process: TensorFlow keeps some memory of each.
T = TypeVar('T')


@contextlib.contextmanager
def stopping(send: Callable[[int], None]) -> Iterator[list[int]]:
  """A context in which SIGINT and SIGTERM are sent on to the processes, and listed.

  Runs end after their round and are saved; a second signal ends them.

  Args:
    send: Sends a signal to the processes that do a run.
  """
  received: list[int] = []

  def stop(number: int, unused_frame: Any) -> None:
    received.append(number)
    send(number)

  before = [(n, signal.signal(n, stop)) for n in (signal.SIGINT, signal.SIGTERM)]
  try:
    yield received
  finally:
    for number, handler in before:
      signal.signal(number, handler)


class _Process(Generic[T]):
  """A process with the job that it does, if any, and what that was given for."""

  def __init__(self, key: tuple[Any, ...] | None, program: str, last_signal: int):
    self.key, self.runs, self.is_asked = key, 0, False
    self.ticket: T | None = None
    self._process = subprocess.Popen(
      [sys.executable, program],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      start_new_session=True,  # Ctrl-C reaches it once: through the command.
      preexec_fn=functools.partial(child_process.end_with_parent, last_signal),
      env={**os.environ, 'TF_FORCE_GPU_ALLOW_GROWTH': 'true'},  # Several may share a GPU.
    )
    assert self._process.stdin is not None
    assert self._process.stdout is not None
    self._input, self.output = self._process.stdin, self._process.stdout

  @property
  def pid(self) -> int:
    return self._process.pid

  def begin(self, ticket: T, job: worker.Job) -> None:
    self.runs, self.is_asked = self.runs + 1, False
    self.ticket = ticket
    with contextlib.suppress(BrokenPipeError):  # If it has ended, `answer` says how.
      self._input.write(json.dumps(dataclasses.asdict(job)).encode() + b'\n')
      self._input.flush()

  def answer(self) -> worker.Answer:
    """Reads the answer, or says how the process ended without one."""
    line = self.output.readline()
    if line.endswith(b'\n'):
      return worker.Answer(**json.loads(line))
    code = self._process.wait()
    if code >= 0:
      return worker.Answer('failed', f'its process ended with exit code {code}.', True)
    reason = f'its process was ended by {signal.Signals(-code).name}'
    if -code == signal.SIGKILL:
      reason += ': the system may have been short of memory'
    return worker.Answer('failed', f'{reason}.', True)

  def send(self, number: int) -> None:
    self.is_asked = True
    self._process.send_signal(number)

  def close(self) -> None:
    """Lets it end, and waits for that."""
    with contextlib.suppress(BrokenPipeError):
      self._input.close()
    self.output.close()
    self._process.wait()


class WorkerPool(Generic[T]):
  """At most so many processes, each doing a run at a time; closed by leaving its context."""

  def __init__(self, size: int, program: str | None = None, last_signal: int = signal.SIGTERM):
    """Creates it, without any process.

    Args:
      size: Processes at a time.
      program: What they run; default: scripts/_worker.py.
      last_signal: What the system sends them when this process ends.
    """
    self._size, self._program, self._last_signal = size, program or WORKER, last_signal
    self._processes: list[_Process[T]] = []
    self._signal: int | None = None
    self._selector = selectors.DefaultSelector()

  def __enter__(self) -> 'WorkerPool[T]':
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self.send(signal.SIGTERM)  # They save and end, if an error left any at work.
    for process in [*self._processes]:
      self._end(process)
    self._selector.close()

  @property
  def tickets(self) -> list[T]:
    """What the runs that are being done were given for."""
    return [p.ticket for p in self._processes if p.ticket is not None]

  @property
  def has_room(self) -> bool:
    """Whether another run can begin now."""
    return len(self.tickets) < self._size

  def pids(self) -> list[int]:
    """The processes there are."""
    return [process.pid for process in self._processes]

  def begin(self, ticket: T, job: worker.Job, key: tuple[Any, ...] | None) -> None:
    """Begins a run in a process that may do it, or in a new one; there must be room.

    After `send` it is sent the signal too: one that comes while a run begins may find no process.

    Args:
      ticket: Comes back with the answer.
      job: The run.
      key: See `worker.process_key`.
    """
    idle = [process for process in self._processes if process.ticket is None]
    fitting = [p for p in idle if key is not None and p.key == key]
    if fitting:
      process = fitting[0]
    else:
      if len(self._processes) >= self._size:
        self._end(idle[0])
      process = _Process(key, self._program, self._last_signal)
      self._processes.append(process)
      self._selector.register(process.output, selectors.EVENT_READ, process)
    process.begin(ticket, job)
    if self._signal is not None and not process.is_asked:  # A second signal would end it at once.
      process.send(self._signal)

  def wait(self, seconds: float) -> list[tuple[T, worker.Answer]]:
    """Returns the runs that have ended, after at most so many seconds, perhaps none."""
    found = []
    for chosen, _ in self._selector.select(seconds):
      process: _Process[T] = chosen.data
      ticket, process.ticket = process.ticket, None
      answer = process.answer()
      if answer.is_last or process.key is None or process.runs >= _MOST_RUNS:
        self._end(process)
      if ticket is not None:
        found.append((ticket, answer))
    return found

  def send(self, number: int) -> None:
    """Sends a signal to the processes that do a run, or will."""
    self._signal = number
    for process in self._processes:
      if process.ticket is not None:
        process.send(number)

  def _end(self, process: _Process[T]) -> None:
    self._processes.remove(process)
    self._selector.unregister(process.output)
    process.close()
