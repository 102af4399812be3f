"""What trains: runs of several tasks at a time, each in a process of its own."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from tff_adaptive.runs import run as run_lib, summary

from . import command, flags, signals, worker
from .settings import Settings

LOGS = 'logs'
STOPPED = 'Stopped; the same command goes on from here.'
_POLL = 0.05  # Seconds.
_TICK = 0.2  # Between two times that the user is shown how things stand, at least,
_DRAWING = 0.1  # and the part of the time that this may take.
# A run and the round where it is to end for now, None: where its settings say; what came of it.
Task = Generator[tuple[Settings, int | None], worker.Answer, None]


class LocalHost:
  """Does runs on this machine, one at a time, each in a process of its own."""

  _process: Any = None

  def begin(self, job: worker.Job) -> None:
    """Begins a run."""
    self._process, self._answers = worker.start(job)

  def answer(self) -> worker.Answer | None:
    """What came of the run; None: nothing yet."""
    if not self._answers.poll():
      return None
    try:
      answer: worker.Answer | None = self._answers.recv()
    except EOFError:
      answer = None
    self._process.join()
    return answer or worker.ended_with(self._process.exitcode)

  def stop(self, number: int) -> bool:
    """Sends the process a signal; False if there is none."""
    if self._process is None or not self._process.is_alive():
      return False
    os.kill(self._process.pid, number)
    return True

  def close(self) -> None:
    """Ends the run, if there is one, and waits for that."""
    if self.stop(signal.SIGTERM):
      self._process.join()


def share(
  tasks: Iterator[Task],
  jobs: int,
  say: Callable[[str], None] = command.say,
  tick: Callable[[int], None] = lambda number: None,
) -> int | None:
  """Does tasks, several at a time, each on a host, until all have ended.

  What a run prints is in logs/ beside its folder.
  SIGINT and SIGTERM are sent on to the runs, which end after their round and are saved; a second
  signal ends them at once.

  Args:
    tasks: The tasks; one is asked for when a host is free.
    jobs: How many hosts there are.
    say: Shows the user a line.
    tick: Called with the number of runs that are being done, now and then.

  Returns:
    The signal that ended it, if any.

  Raises:
    Exception: What a task raised first; the runs of the others are saved.
  """
  asked: list[int] = []  # The signals, and one if a task has failed.
  errors: list[Exception] = []
  hosts: list[LocalHost] = []
  at_work: dict[LocalHost, Generator[worker.Job, worker.Answer | None, None]] = {}
  sent: dict[LocalHost, int] = {}  # How many signals it has.

  def proceed(host: LocalHost, answer: worker.Answer | None = None) -> None:
    try:
      return host.begin(at_work[host].send(answer))
    except StopIteration:  # No task is left.
      pass
    except Exception as error:
      errors.append(error)
      if not asked:  # A second signal would end the runs at once, unsaved.
        asked.append(signal.SIGTERM)
    del at_work[host]

  before = [(n, signal.signal(n, lambda n, _: asked.append(n))) for n in signals.SIGNALS]
  next_tick = 0.0
  try:
    while True:
      while len(hosts) == len(at_work) < jobs and not asked:
        hosts.append(host := LocalHost())
        at_work[host], sent[host] = _jobs(tasks, asked, say), 0
        proceed(host)
      if not at_work:
        break
      if (begin := time.monotonic()) >= next_tick:
        tick(len(at_work))
        now = time.monotonic()
        next_tick = now + max(_TICK, (now - begin) / _DRAWING)
      for host in [*at_work]:
        while sent[host] < len(asked) and host.stop(asked[sent[host]]):
          sent[host] += 1
        if (answer := host.answer()) is not None:
          proceed(host, answer)
      time.sleep(_POLL)
  finally:
    for host in hosts:
      host.close()
    for number, handler in before:
      signal.signal(number, handler)
  if errors:
    raise errors[0]
  return asked[0] if asked else None


def _jobs(
  tasks: Iterator[Task], asked: Sequence[int], say: Callable[[str], None]
) -> Generator[worker.Job, worker.Answer | None, None]:
  """The runs of one task after another that are not there already; a task is told of all of its."""
  while not asked and (task := next(tasks, None)) is not None:
    answer: worker.Answer | None = None
    with contextlib.suppress(StopIteration):
      while True:
        run, last_round = next(task) if answer is None else task.send(answer)
        where = run.output.output_dir
        if asked:
          answer = worker.Answer('stopped')
        elif summary.is_complete(where, run.training.rounds):
          answer = worker.Answer('done')
          if last_round is None:
            say(f'{where}: complete already')
        elif last_round is not None and _rounds(where) >= last_round:
          answer = worker.Answer('done')
        else:
          parent, name = os.path.split(os.path.abspath(where))
          log = os.path.join(parent, LOGS, f'{name}.log')
          answer = yield worker.Job(flags.command_line(run.given), log, last_round)
          assert answer is not None
          if asked:  # A run that had not begun ends without saving.
            answer = answer if answer.kind in ('done', 'diverged') else worker.Answer('stopped')
          elif answer.kind == 'stopped':
            answer = worker.Answer('failed', 'its process was asked to end.')
          if answer.kind not in ('done', 'stopped'):
            say(f'{where}: {answer.kind}: {answer.reason}')


def _rounds(folder: str) -> float:
  try:
    return run_lib.load_run(folder).rows[-1]['round']
  except ValueError:
    return -1
