"""Workers that share pieces of work, and may end while they do."""

import collections
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tff_adaptive.execution import connections

_BEAT_SECONDS = 5.0
_MISSED_BEATS = 2
_RETURN_SECONDS = 60.0  # From one try to reach a lost worker again to the next.

Task = Callable[[connections.Connection], Any]


class WorkersLost(connections.WorkerError):
  """All workers are lost: what was asked of them cannot be done."""


class Crew:
  """Some workers.

  Attributes:
    tell: Takes a line for the user: a worker is lost, or is back. By default a warning.
    occasion: What the work is for, such as 'round 7'; lines and errors begin with it.
  """

  def __init__(self, workers: Sequence[connections.Connection]):
    self._workers = list(workers)
    self._lost: dict[connections.Connection, str] = {}
    self._next_try = 0.0
    self._in_use = threading.Lock()
    self.tell: Callable[[str], None] = lambda line: warnings.warn(line, stacklevel=2)
    self.occasion = ''

  def connect(self) -> None:
    """Connects to all workers at once.

    Raises:
      connections.WorkerError: If one cannot be used; each of them is named.
    """
    errors = _connect(self._workers)
    if errors:
      raise connections.WorkerError('; '.join(sorted(errors.values())))

  def close(self) -> None:
    """Closes the connections."""
    for worker in self._workers:
      worker.close()

  def run(self, tasks: Sequence[Task]) -> list[Any]:
    """Does each task on some worker, and those of a worker that ends on another one.

    Args:
      tasks: Each is called with a worker; it may be called again after `WorkerLost`.

    Returns:
      Their results, in order: each from one call that ended well.

    Raises:
      WorkersLost: If no worker is left.
      Exception: What a task raised, `WorkerLost` apart.
    """
    with self._in_use:
      return self._run(tasks)

  def _run(self, tasks):
    self._bring_back()
    work = _Work(tasks)
    for worker in self._workers:
      if worker not in self._lost:
        work.employ(worker)
    try:
      while not work.wait(_BEAT_SECONDS):
        for worker, reason in work.take_losses():
          self._lose(worker, reason, work.num_employed)
    finally:
      work.stop(_BEAT_SECONDS)
    for worker, reason in work.take_losses():
      self._lose(worker, reason, work.num_employed)
    if work.failure is not None:
      raise work.failure
    if len(work.results) < len(tasks):
      reasons = '; '.join(f'{w.address}: {reason}' for w, reason in self._lost.items())
      raise WorkersLost(self._begin(f'all workers are lost ({reasons})'))
    return [work.results[i] for i in range(len(tasks))]

  def _lose(self, worker, reason, num_left):
    worker.close()
    self._lost[worker] = reason
    self._next_try = time.monotonic() + _RETURN_SECONDS
    others = f'the {num_left} left' if num_left else 'nobody: none is left'
    self.tell(self._begin(f'worker {worker.address} is lost ({reason}); its work goes to {others}'))

  def _bring_back(self):
    if not self._lost:
      return
    is_somebody_left = len(self._lost) < len(self._workers)
    if is_somebody_left and time.monotonic() < self._next_try:
      return
    self._next_try = time.monotonic() + _RETURN_SECONDS
    tried = list(self._lost)
    self._lost = _connect(tried)
    for worker in tried:
      if worker not in self._lost:
        self.tell(self._begin(f'worker {worker.address} is back'))

  def _begin(self, line):
    line = f'{self.occasion}: {line}' if self.occasion else line
    return line[0].upper() + line[1:]


def _connect(workers):
  """Connects to workers at once; returns what is wrong with those that cannot be used.

  Each in a thread of its own: in that of the caller an event loop may be running (in a notebook),
  where TFF's contexts cannot be called.
  """
  errors: dict[connections.Connection, str] = {}

  def connect(worker):
    try:
      worker.connect()
    except connections.WorkerError as error:
      errors[worker] = str(error)

  threads = [threading.Thread(target=connect, args=(w,), daemon=True) for w in workers]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return errors


class _Work:
  """Tasks under way: a thread a worker takes one after another."""

  def __init__(self, tasks):
    self._tasks = tasks
    self._pending = collections.deque(range(len(tasks)))
    self._changed = threading.Condition()
    self._busy: dict[connections.Connection, int] = {}  # Worker -> beats missed.
    self._losses: list[tuple[connections.Connection, str]] = []
    self._stopped = False
    self.num_employed = 0
    self.results: dict[int, Any] = {}
    self.failure: Any = None

  def employ(self, worker):
    self.num_employed += 1
    threading.Thread(target=self._serve, args=(worker,), daemon=True).start()

  def wait(self, seconds) -> bool:
    """Whether it is over; returns at a loss, or after some seconds in which workers are asked."""
    self._listen_until(lambda: self._is_over() or self._losses, seconds)
    with self._changed:
      return self._is_over()

  def take_losses(self):
    with self._changed:
      taken, self._losses = self._losses, []
    return taken

  def stop(self, seconds):
    """Ends the work; after a failure, waits for the workers in it, asking them as `wait` does."""
    with self._changed:
      self._stopped = True
      self._changed.notify_all()
    while self.failure is not None and self._busy:
      self._listen_until(lambda: not self._busy, seconds)

  def _is_over(self):
    is_done = len(self.results) == len(self._tasks)
    return is_done or self.failure is not None or not self.num_employed

  def _listen_until(self, condition, seconds):
    """Waits for the condition; after some seconds without it, asks the workers in work."""
    with self._changed:
      if self._changed.wait_for(condition, seconds):
        return
      busy = list(self._busy)
    for worker in busy:
      self._listen(worker)

  def _listen(self, worker):
    """Gives a worker up whose machine has gone: nothing else would end the call."""
    try:
      worker.knock()
      missed = 0
    except OSError:
      missed = self._busy.get(worker, 0) + 1
    with self._changed:
      if worker in self._busy:
        self._busy[worker] = missed
    if missed >= _MISSED_BEATS:
      worker.close()

  def _serve(self, worker):
    while True:
      with self._changed:
        self._changed.wait_for(lambda: self._pending or self._stopped or self._is_over())
        if self._stopped or self._is_over():
          return
        number = self._pending.popleft()
        self._busy[worker] = 0
      try:
        result, error = self._tasks[number](worker), None
      except BaseException as e:
        result, error = None, e
      with self._changed:
        del self._busy[worker]
        if error is None:
          self.results[number] = result
        elif isinstance(error, connections.WorkerLost):
          self._pending.appendleft(number)
          self._losses.append((worker, str(error)))
          self.num_employed -= 1
        else:
          self.failure = error
        self._changed.notify_all()
        if error is not None:
          return
