"""A process that has imported TensorFlow, once, and forks one for each training run.

It reads a line of JSON for each run (`Job`) from its standard input and writes one (`Answer`) to
its standard output. What a run prints goes to a file of its own. It ends with its input.
"""

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from .. import _entry
from . import command, flags, resolve, run, signals, tensorflow_start

_POLL = 0.02  # Seconds.


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


def main(arguments: Sequence[str]) -> int:
  """Does the runs that the standard input names; returns 0 when it ends.

  Args:
    arguments: The program's name, and the signal that ends a run with the standard input: whoever
      wanted it is gone.
  """
  _entry.before_end = run.reap_workers
  answers = os.dup(sys.stdout.fileno())
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Answers only go where they belong.
  _load()
  heard: list[int] = []  # Signals for the run.
  before = [(n, signal.signal(n, lambda n, _: heard.append(n))) for n in signals.SIGNALS]
  with open(0, 'rb', buffering=0, closefd=False) as file:
    for line in file:
      signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
      process = os.fork()
      if not process:
        for number, handler in before:
          signal.signal(number, handler)
        _run(Job(**json.loads(line)), int(arguments[1]), answers)
      signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
      while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        while heard:
          os.kill(process, heard.pop(0))
        time.sleep(_POLL)
      if code := os.waitstatus_to_exitcode(ended[1]):  # It has not answered.
        _write(answers, ended_with(code))
  _entry.exit_code = 0
  return 0


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


def _load() -> None:
  """Imports what every run needs; nothing is computed, for threads do not survive a fork."""
  tensorflow_start.quietly()
  tensorflow_start.load()
  own = ('tff_adaptive.training', 'tff_adaptive_tasks', f'{__package__}.build')
  for name in (*own, 'matplotlib.backends.backend_agg'):
    importlib.import_module(name)


def _run(job: Job, last_signal: int, answers: int) -> NoReturn:
  """Does a run in the forked process, which ends with it."""
  code = 1
  try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
    done = threading.Event()
    threading.Thread(target=_end_with_input, args=(last_signal, done), daemon=True).start()
    os.makedirs(os.path.dirname(job.log), exist_ok=True)
    with open(job.log, 'ab') as file:
      for stream in (sys.stdout, sys.stderr):
        os.dup2(file.fileno(), stream.fileno())
    answer = do(job)
    sys.stdout.flush()
    sys.stderr.flush()
    done.set()
    _write(answers, answer)
    code = 0
  finally:
    os._exit(code)


def _end_with_input(number: int, done: threading.Event) -> None:
  """Until there is an answer nothing can be read from the standard input, which only ends."""
  select.select([0], [], [])
  if not done.is_set():  # Otherwise it may be the next run.
    os.kill(os.getpid(), number)


def _write(answers: int, answer: Answer) -> None:
  try:
    os.write(answers, json.dumps(answer._asdict()).encode() + b'\n')
  except BrokenPipeError:  # The command was killed; whoever comes next finds the run.
    os._exit(0)


def _line(error: BaseException) -> str:
  return ' '.join(str(error).split())
