"""Runs training in child processes, forked from a process that has imported TensorFlow."""

import contextlib
import functools
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

from tff_adaptive.runs import summary
from tff_adaptive.training import protocols

from . import command, flags, resolve, run as run_lib, settings, signals

STOPPED = 'Stopped; the same command goes on from here.'
_POLL = 0.05  # Seconds.
_CONTEXT: Any = multiprocessing.get_context('forkserver')
_PROCESSES = threading.Lock()  # multiprocessing starts and joins one at a time.


class Answer(NamedTuple):
  """The outcome of a run, and a reason in one line.

  The outcome is 'done' (at its last round), 'stopped' (by a signal, saved), 'diverged' or 'failed'.
  """

  kind: str
  reason: str = ''


# Does a run: to the end, or to a round where it is to end for now.
Train = Callable[[settings.Settings, int | None], Answer]


def share(tasks: Iterator[Callable[[Train], None]], jobs: int) -> int:
  """Works on several tasks at a time until all have ended.

  A signal ends the runs after their round, which is saved. A second signal ends them at once.

  Args:
    tasks: The tasks, which are called with `train`. The next one is taken when another has ended.
    jobs: The number of tasks at a time.

  Returns:
    128 + the number of the signal that ended the runs; 0 without a signal.

  Raises:
    Exception: The first error of a task. The runs of the others are saved.
  """
  lock = threading.Lock()

  def work() -> None:
    try:
      while not stop.requested:
        with lock:
          task = next(tasks, None)
        if task is None:
          return
        task(functools.partial(train, stop=stop))
    except BaseException:
      stop.request()
      raise

  with signals.StopGuard() as stop, futures.ThreadPoolExecutor(jobs) as pool:
    at_work = [pool.submit(work) for _ in range(jobs)]
  for one in at_work:
    one.result()
  return stop.exit_code


def train(run: settings.Settings, last_round: int | None, stop: protocols.Stop) -> Answer:
  """Trains a run unless it is complete or `stop` is requested; returns its outcome."""
  where = run.output.output_dir
  if stop.requested:
    return Answer('stopped')
  if summary.is_complete(where, run.training.rounds):
    if last_round is None:
      command.say(f'{where}: complete already')
    return Answer('done')
  command.say(where if last_round is None else f'{where} to round {last_round}')
  return _reported(where, in_process(run, last_round, stop), stop)


def _reported(where: str, answer: Answer, stop: protocols.Stop) -> Answer:
  if stop.requested:  # A run that had not begun ends without saving.
    return answer if answer.kind in ('done', 'diverged') else Answer('stopped')
  if answer.kind == 'stopped':
    answer = Answer('failed', 'its process was asked to end.')
  if answer.kind != 'done':
    command.say(f'{where}: {answer.kind}: {answer.reason}')
  return answer


def in_process(run: settings.Settings, last_round: int | None, stop: protocols.Stop) -> Answer:
  """Trains a run in its own process; its output is appended to logs/NAME.log beside its folder.

  The process gets SIGTERM if `stop` is requested, or if this process ends.
  """
  parent, name = os.path.split(os.path.abspath(run.output.output_dir))
  log = os.path.join(parent, 'logs', f'{name}.log')
  answers, writer = _CONTEXT.Pipe(duplex=False)
  process = _CONTEXT.Process(
    target=_run, args=(flags.command_line(run.given), last_round, log, writer)
  )
  _start(process)
  writer.close()
  is_asked = False
  while not answers.poll(_POLL):
    if stop.requested and not is_asked:
      process.terminate()
      is_asked = True
  try:
    answer: Answer | None = answers.recv()
  except EOFError:
    answer = None
  with _PROCESSES:
    process.join()
  return answer or _ended_with(process.exitcode)


def _start(process: Any) -> None:
  with _PROCESSES:
    _CONTEXT.set_forkserver_preload([f'{__package__}.preload'])
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')  # A run has no use for the command's.
    # The server that it starts inherits it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
    try:
      multiprocessing.forkserver.ensure_running()
      signal.pthread_sigmask(signal.SIG_SETMASK, before)
      process.start()
    finally:
      sys.modules['__main__'] = main


def _ended_with(code: int) -> Answer:
  """Returns the answer for a process that ended without one, from its exit code."""
  if code >= 0:
    return Answer('failed', f'its process ended with exit code {code}.')
  reason = f'its process was ended by {signal.Signals(-code).name}'
  if -code == signal.SIGKILL:
    reason += ': the system may have been short of memory'
  return Answer('failed', f'{reason}.')


def _run(
  arguments: Sequence[str],
  last_round: int | None,
  log: str,
  answers: multiprocessing.connection.Connection,
) -> None:
  """Trains a run in the child process."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'  # Several may share a GPU.
  os.makedirs(os.path.dirname(log), exist_ok=True)
  with open(log, 'ab') as file:
    for stream in (1, 2):  # What is not Python prints, too.
      os.dup2(file.fileno(), stream)
  with contextlib.suppress(BrokenPipeError):  # The command was killed; who comes next finds it.
    answers.send(do(arguments, last_round))


def do(arguments: Sequence[str], last_round: int | None = None) -> Answer:
  """Trains a run with these flags of `train.py` here, until `last_round` (None: to its end)."""
  try:
    given = flags.parse(['train.py', *arguments]) or {}
    outcome = run_lib.run(resolve.resolve(given), last_round=last_round)
    run_lib.check_result(outcome.result)
  except Exception as error:
    words = ' '.join(str(error).split())
    if not isinstance(error, (command.FailureError, ValueError, OSError)):
      traceback.print_exc()
      words = f'{type(error).__name__}: {words}'
    return Answer('diverged' if isinstance(error, command.DivergedError) else 'failed', words)
  return Answer('stopped' if outcome.exit_code else 'done')


def _end_with_parent() -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  multiprocessing.connection.wait([parent.sentinel])
  os.kill(os.getpid(), signal.SIGTERM)
