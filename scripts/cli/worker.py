"""Training runs in processes of their own, forked from one that has imported TensorFlow, once."""

import contextlib
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import command, flags, resolve, run, signals

_CONTEXT: Any = multiprocessing.get_context('forkserver')


class Job(NamedTuple):
  """A run: its flags of train.py, the file to which is appended what it prints, its last round.

  The round is where to end for now; None: where its settings say.
  """

  flags: Sequence[str]
  log: str
  last_round: int | None = None


class Answer(NamedTuple):
  """What came of it, and why, in one line.

  It is 'done' (where it was to end), 'stopped' (by a signal, and saved), 'diverged' or 'failed'.
  """

  kind: str
  reason: str = ''


def start(job: Job) -> tuple[Any, multiprocessing.connection.Connection]:
  """Starts a run; returns its process and the connection on which it sends its answer.

  It is sent SIGTERM if this process ends in its midst.
  """
  _CONTEXT.set_forkserver_preload([f'{__package__}.preload'])
  answers, writer = _CONTEXT.Pipe(duplex=False)
  process = _CONTEXT.Process(target=_run, args=(job, writer))
  main = sys.modules['__main__']
  sys.modules['__main__'] = types.ModuleType('__main__')  # A run has no use for the command's.
  before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)  # What it starts inherits it.
  try:
    multiprocessing.forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.start()
  finally:
    sys.modules['__main__'] = main
  writer.close()
  return process, answers


def ended_with(code: int) -> Answer:
  """The answer for a process that ended without one, by its exit code."""
  if code >= 0:
    return Answer('failed', f'its process ended with exit code {code}.')
  reason = f'its process was ended by {signal.Signals(-code).name}'
  if -code == signal.SIGKILL:
    reason += ': the system may have been short of memory'
  return Answer('failed', f'{reason}.')


def do(job: Job) -> Answer:
  """Does one run in this process."""
  try:
    given = flags.parse(['train.py', *job.flags]) or {}
    outcome = run.run(resolve.resolve(given), last_round=job.last_round)
    run.check_result(outcome.result)
  except command.DivergedError as error:
    return Answer('diverged', _line(error))
  except (command.FailureError, ValueError, OSError) as error:
    return Answer('failed', _line(error))
  except Exception as error:
    traceback.print_exc()
    return Answer('failed', f'{type(error).__name__}: {_line(error)}')
  return Answer('stopped' if outcome.exit_code else 'done')


def _run(job: Job, answers: multiprocessing.connection.Connection) -> None:
  """Does a run in its process."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'  # Several may share a GPU.
  os.makedirs(os.path.dirname(job.log), exist_ok=True)
  with open(job.log, 'ab') as file:
    for stream in (1, 2):  # What is not Python prints, too.
      os.dup2(file.fileno(), stream)
  with contextlib.suppress(BrokenPipeError):  # The command was killed; who comes next finds it.
    answers.send(do(job))


def _end_with_parent() -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  multiprocessing.connection.wait([parent.sentinel])
  os.kill(os.getpid(), signal.SIGTERM)


def _line(error: BaseException) -> str:
  return ' '.join(str(error).split())
