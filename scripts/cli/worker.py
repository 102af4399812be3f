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

from tff_adaptive._utils import temporary_folders
from tff_adaptive.runs import state_file, summary
from tff_adaptive.training import protocols

from . import command, flags, resolve, run as run_lib, settings, signals

STOPPED = 'Stopped; the same command resumes from here.'
_POLL = 0.05  # Seconds.
_CONTEXT: Any = multiprocessing.get_context('forkserver')
_PROCESSES = threading.Lock()  # multiprocessing starts and joins one at a time.


class Answer(NamedTuple):
  """The outcome of a run, and for a run that diverged or failed the reason in one line.

  `kind` is 'done' (at the last round that was asked for), 'stopped' (by a signal; finished rounds
  are saved), 'diverged' or 'failed'.
  """

  kind: str
  reason: str = ''


# Trains a run of these settings to the given round, or to its end (None).
Train = Callable[[settings.Settings, int | None], Answer]


def share(tasks: Iterator[Callable[[Train], None]], jobs: int) -> int:
  """Runs tasks in threads, several at a time, until all tasks have ended.

  A signal ends the runs after their current round, which is saved. A second one ends them at once.

  Args:
    tasks: Functions `task(train)`, which call `train` for each of their runs. The next task
      begins when a task has ended.
    jobs: The number of tasks at a time.

  Returns:
    128 + the number of the signal that ended the runs; 0 without a signal.

  Raises:
    Exception: The error of a task. The runs of the other tasks are saved and ended first.
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
  """Trains a run in a child process, unless it is complete or `stop` is requested."""
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
  if stop.requested:  # A run that has not begun fails when it is asked to end.
    return answer if answer.kind in ('done', 'diverged') else Answer('stopped')
  if answer.kind == 'stopped':
    answer = Answer('failed', 'its process was asked to end.')
  if answer.kind != 'done':
    command.say(f'{where}: {answer.kind}: {answer.reason}')
  return answer


def in_process(run: settings.Settings, last_round: int | None, stop: protocols.Stop) -> Answer:
  """Trains a run in a child process, and returns the outcome.

  The output is appended to logs/NAME.log beside the run's folder NAME. The child gets SIGTERM if
  `stop` is requested or this process ends.
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
    temporary_folders.use_for_processes()
    _CONTEXT.set_forkserver_preload([f'{__package__}.preload'])
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')  # A run does not need the command's.
    # The fork server inherits this mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
    try:
      multiprocessing.forkserver.ensure_running()
      signal.pthread_sigmask(signal.SIG_SETMASK, before)
      process.start()
    finally:
      sys.modules['__main__'] = main


def _ended_with(code: int) -> Answer:
  """Returns the answer for a process that sent no answer; exit code -N means signal N."""
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
  """Trains a run in the child process, and sends the `Answer`. Output goes to the file `log`."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'  # Several runs may share a GPU.
  state_file.StateFile.seconds = 60.0  # A run whose sweep was killed first ends its round.
  os.makedirs(os.path.dirname(log), exist_ok=True)
  with open(log, 'ab') as file:
    for stream in (1, 2):  # The output of native code, too.
      os.dup2(file.fileno(), stream)
  with contextlib.suppress(BrokenPipeError):  # The command was killed; a new start finds the run.
    answers.send(do(arguments, last_round))


def do(arguments: Sequence[str], last_round: int | None = None) -> Answer:
  """Trains a run in this process, with `arguments`, flags of train.py. Returns the outcome.

  `last_round` is the round after which to save and stop for now; None trains all rounds. An error
  is not raised, but returned as the outcome 'failed' or 'diverged'.
  """
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
