"""What trains, one run after another; several work at a time, in a thread each."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tff_adaptive.runs import run as run_lib, summary

from . import command, flags, worker
from .settings import Settings

LOGS = 'logs'
STOPPED = 'Stopped; the same command goes on from here.'
_SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKER = (sys.executable, os.path.join(_SCRIPTS, '_worker.py'))
_TICK = 0.2  # Seconds.


class Host(Protocol):
  """What does runs, one at a time: processes of this machine, or of one of a cluster."""

  def do(self, job: worker.Job) -> worker.Answer:
    """Does a run."""

  def stop(self, number: int) -> bool:
    """Sends a signal to the run; False if none has begun."""

  def close(self) -> None:
    """Ends it."""


class LocalHost:
  """A `worker` on this machine, which is replaced where it has ended."""

  def __init__(self, last_signal: int = signal.SIGTERM, program: Sequence[str] | None = None):
    """Creates it, without a process yet.

    Args:
      last_signal: What a run is sent when this process ends in its midst.
      program: The worker's command line; default: `WORKER`.
    """
    self._command = [*(program or WORKER), str(int(last_signal))]
    self._process: subprocess.Popen[bytes] | None = None
    self._is_at_work = False

  def do(self, job: worker.Job) -> worker.Answer:
    """Does a run."""
    if self._process is None:
      self._process = subprocess.Popen(
        self._command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches it once: through this process.
        env={**os.environ, 'TF_FORCE_GPU_ALLOW_GROWTH': 'true'},  # Several may share a GPU.
      )
    process = self._process
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # If it has ended, its exit code says how.
      process.stdin.write(json.dumps(dataclasses.asdict(job)).encode() + b'\n')
      process.stdin.flush()
    self._is_at_work = True
    line = process.stdout.readline()
    self._is_at_work = False
    if line.endswith(b'\n'):
      return worker.Answer(**json.loads(line))
    self.close()
    return worker.ended_with(process.returncode)

  def stop(self, number: int) -> bool:
    """Sends the process a signal, if a run has begun."""
    process = self._process
    if process is None or not self._is_at_work:
      return False
    process.send_signal(number)
    return True

  def close(self) -> None:
    """Lets the process end, and waits for that."""
    process, self._process = self._process, None
    if process is not None:
      with contextlib.suppress(BrokenPipeError):
        process.communicate()


class Trainer:
  """What a thread trains with."""

  def __init__(self, host: Host, asked: list[int], say: Callable[[str], None]):
    """Creates it.

    Args:
      host: Does the runs.
      asked: The signals that the command has received, up to now.
      say: Shows the user a line.
    """
    self.host, self.asked, self.say = host, asked, say
    self.sent = 0  # How many of these signals the host has.

  def train(self, run: Settings, folder: str, last_round: int | None = None) -> worker.Answer:
    """Trains a run up to a round, unless it is there already.

    Args:
      run: Its settings.
      folder: In whose logs/ is what it prints.
      last_round: Where to end for now; None: where its settings say.

    Returns:
      What came of it; 'stopped' after a signal to the command.
    """
    if summary.is_complete(run.output.output_dir, run.training.rounds):
      if last_round is None:
        self.say(f'{run.output.output_dir}: complete already')
      return worker.Answer('done')
    if last_round is not None and _rounds(run.output.output_dir) >= last_round:
      return worker.Answer('done')
    name = f'{os.path.basename(run.output.output_dir)}.log'
    job = worker.Job(
      flags.command_line(run.given), os.path.abspath(os.path.join(folder, LOGS, name)), last_round
    )
    if self.asked:
      return worker.Answer('stopped')
    answer = self.host.do(job)
    if self.asked:  # A run that had not begun ends without saving.
      return answer if answer.kind in ('done', 'diverged') else worker.Answer('stopped')
    if answer.kind == 'stopped':
      answer = worker.Answer('failed', 'its process was asked to end.')
    if answer.kind != 'done':
      self.say(f'{run.output.output_dir}: {answer.kind}: {answer.reason}')
    return answer


def _rounds(folder: str) -> float:
  try:
    return run_lib.load_run(folder).rows[-1]['round']
  except ValueError:
    return -1


def in_threads(
  work: Callable[[Trainer], None],
  size: Callable[[], int],
  make_host: Callable[[], Host],
  say: Callable[[str], None] = command.say,
  tick: Callable[[int], None] = lambda number: None,
) -> int | None:
  """Works in several threads, each with a host of its own, until all have returned.

  SIGINT and SIGTERM are sent on to the runs, which end after their round and are saved; a second
  signal ends them at once.

  Args:
    work: Does runs with a trainer until none is left.
    size: How many threads there may be, now.
    make_host: Makes a host.
    say: Shows the user a line.
    tick: Called with the number of threads, several times a second.

  Returns:
    The signal that ended it, if any.

  Raises:
    Exception: What `work` raised first; the runs of the other threads are saved.
  """
  received: list[int] = []
  asked: list[int] = []  # These, and one if a thread has failed.
  errors: list[BaseException] = []
  trainers: list[Trainer] = []

  def hear(number: int, unused_frame: Any) -> None:
    received.append(number)
    asked.append(number)

  def end() -> None:
    if not asked:  # A second signal would end the runs at once, unsaved.
      asked.append(signal.SIGTERM)

  def do(trainer: Trainer) -> None:
    try:
      work(trainer)
    except BaseException as error:
      errors.append(error)
      end()
    finally:
      trainer.host.close()

  def send() -> None:
    for trainer in trainers:
      while trainer.sent < len(asked) and trainer.host.stop(asked[trainer.sent]):
        trainer.sent += 1

  threads: list[threading.Thread] = []
  before = [(n, signal.signal(n, hear)) for n in (signal.SIGINT, signal.SIGTERM)]
  try:
    while True:
      alive = [thread for thread in threads if thread.is_alive()]
      # Where one has returned, no run is left to begin.
      while len(alive) == len(threads) < size() and not asked:
        trainers.append(Trainer(make_host(), asked, say))
        threads.append(threading.Thread(target=do, args=(trainers[-1],)))
        threads[-1].start()
        alive.append(threads[-1])
      if not alive:
        break
      tick(len(alive))
      send()
      alive[0].join(_TICK)
  finally:
    end()  # If `tick` has failed.
    for thread in threads:
      while thread.is_alive():
        send()
        thread.join(_TICK)
    for number, handler in before:
      signal.signal(number, handler)
  if errors:
    raise errors[0]
  return received[0] if received else None
