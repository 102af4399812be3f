"""Searches with several processes, each forked from a process that has imported TensorFlow."""

import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import types
import uuid
from typing import Any

from tff_adaptive._utils import temporary_folders
from tff_adaptive.training import protocols

from . import command, plan as plan_lib, search_space, signals, study as study_lib, worker

STOPPED = 'Stopped; the same command resumes from here.'
_POLL = 1.0  # Seconds between looks at the trials of other commands.


def search(folder: str, space: search_space.Space, plan: plan_lib.Plan) -> int:
  """Does all trials of a search that are not done yet, with `plan.jobs` processes at a time.

  Each process does one trial. The first signal ends the trials after their current rounds, which
  are saved. A second one ends this process at once.

  Args:
    folder: The sweep's folder.
    space, plan: The space to search, and the flags that say how.

  Returns:
    0; 128 + signal if a signal ended the search; the exit code of a process that found the search
    invalid and said so.

  Raises:
    ValueError: If the folder holds another search, or a damaged one.
    command.FailureError: If a process died before it began a trial.
  """
  trials = study_lib.Study(folder, space, plan)
  trials.retry()
  with signals.StopGuard() as stop:
    workers = _Workers(trials, (folder, space, plan), stop)
    # A process does one trial, so that nothing of a run is left for the next: its threads, hidden
    # GPUs and memory are set once for a process.
    try:
      while not stop.requested and not workers.code:
        waiting = trials.count('waiting')
        left = waiting + trials.count('running')
        if not left:
          break
        if waiting and workers.number < min(plan.jobs, left):
          workers.start()
        elif not workers.number:  # The others are trials of other commands, or were.
          trials.retry_lost()
        workers.wait()
    finally:
      workers.end()
  if stop.exit_code:
    command.say(STOPPED)
  return stop.exit_code or workers.code


class _Workers:
  """The processes of a search.

  Attributes:
    code: The exit code of a process that found the search invalid; 0 if there was none.
  """

  def __init__(self, trials: study_lib.Study, arguments: tuple[Any, ...], stop: protocols.Stop):
    self._trials = trials
    self._arguments = arguments
    self._stop = stop
    self._processes: dict[str, Any] = {}  # By the name that trials know.
    self.code = 0

  @property
  def number(self) -> int:
    """The number of processes at work."""
    return len(self._processes)

  def start(self) -> None:
    """Starts a process, which does the next trial."""
    name = uuid.uuid4().hex
    self._processes[name] = start_process(work, (name, *self._arguments))

  def wait(self) -> None:
    """Waits until a process ends, a signal comes, or for a second."""
    ends = [process.sentinel for process in self._processes.values()]
    waited = 0.0
    # In small parts, because a signal does not end the wait for a process.
    while not self._stop.requested and waited < _POLL:
      if multiprocessing.connection.wait(ends, _POLL / 10):
        break
      waited += _POLL / 10
    for name, process in list(self._processes.items()):
      if not process.is_alive():
        del self._processes[name]
        self._check(name, process.exitcode)

  def end(self) -> None:
    """Asks all processes to end after their rounds, and waits for that."""
    for process in self._processes.values():
      process.terminate()
    for process in self._processes.values():
      process.join()

  def _check(self, name: str, code: int) -> None:
    """Records the end of a process; exit code -N means signal N."""
    if code < 0:
      reason = f'its process was ended by {signal.Signals(-code).name}'
      if -code == signal.SIGKILL:
        reason += ': the system may have been short of memory'
      if not self._trials.fail(name, f'{reason}.'):
        raise command.FailureError(f'a process of the sweep did not begin: {reason}.')
      command.say(f'A trial failed: {reason}.')
    elif code < 128:  # Else it was asked to end, and its trial is back in the queue.
      self.code = code


def start_process(target: Any, arguments: tuple[Any, ...]) -> Any:
  """Starts a process that calls `target(*arguments)`, forked from one that knows TensorFlow."""
  context: Any = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload([f'{__package__}.preload'])
  process = context.Process(target=target, args=arguments)
  multiprocessing.resource_tracker.ensure_running()  # In CPython 3.11 it unblocks signals.
  # Processes inherit that signals are blocked. The first one to fork from, `preload`, stays so.
  before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
  main = sys.modules['__main__']
  sys.modules['__main__'] = types.ModuleType('__main__')  # The process does not need the command's.
  try:
    temporary_folders.use_for_processes()
    multiprocessing.forkserver.ensure_running()
    process.start()
  finally:
    sys.modules['__main__'] = main
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
  return process


def work(name: str, folder: str, space: search_space.Space, plan: plan_lib.Plan) -> None:
  """Does a trial in a process of its own, called `name`, and ends the process.

  The exit code is 0 however the trial ended, 2 if the search is not valid, and 128 + signal.
  """
  os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'  # Several runs may share a GPU.
  with signals.StopGuard() as stop:
    stop.announce = lambda line: None  # The command says it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
      do_next(name, study_lib.Study(folder, space, plan), plan, stop, worker.train)
    except ValueError as error:
      sys.exit(command.complain('sweep.py', error))


def do_next(
  name: str,
  trials: study_lib.Study,
  plan: plan_lib.Plan,
  stop: protocols.Stop,
  train: worker.Train,
) -> None:
  """Does the next trial of a search, if one is left. Raises ValueError if the search is invalid."""
  objective = worker.Objective(trials, plan, name, stop, train)
  try:
    trials.do_next(objective)
  except ValueError:
    if objective.error is not None:
      raise
    # This process had no heartbeats for a while, as in a computer that was suspended.
    command.say('Another process has taken over the trial of this one.')


def _end_with_parent() -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  multiprocessing.connection.wait([parent.sentinel])
  os.kill(os.getpid(), signal.SIGTERM)
