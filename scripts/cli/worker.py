"""A process that does training runs one after another, so that they share its imports.

It reads a line of JSON for each run (`Job`) from its standard input and writes one (`Answer`) to
its standard output. What a run prints goes to a file of its own. It ends with its input.
"""

import contextlib
import dataclasses
import gc
import json
import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from tff_adaptive._utils import user_code
from tff_adaptive.devices import threads

from .. import _entry
from . import command, flags, resolve, run, settings


@dataclasses.dataclass(frozen=True)
class Job:
  """A run, or a part of it.

  Attributes:
    flags: Its flags of train.py.
    log: The file to which is appended what it prints.
    last_round: Where to end for now; None: where its settings say.
  """

  flags: list[str]
  log: str
  last_round: int | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
  """What came of it.

  Attributes:
    kind: 'done' (it is where it was to end), 'stopped' (by a signal, and saved), 'diverged' or
      'failed'.
    reason: Why, in one line.
    is_last: Whether the process ends now, because it may be the worse for the run.
  """

  kind: str
  reason: str = ''
  is_last: bool = False


def process_key(of: settings.Settings) -> tuple[Any, ...] | None:
  """Runs with the same key may share a process; None: the run needs one of its own.

  What a process decides once, before TensorFlow's first operation, is in the key: devices and the
  threads of an operation; so are the user's own files. With Ray and TFF's own runtime, workers of
  theirs come and go with the process.
  """
  its = of.runtime
  if its.engine != 'graph' or its.ray is not None or its.subrounds is not None:
    return None
  parallel = its.parallel_clients or threads.side_by_side(of.training.clients_per_round)
  files = json.dumps(of.files(), sort_keys=True)
  return (its.device, threads.fill_processors(parallel), its.mixed_precision, its.xla, files)


def main(arguments: Sequence[str]) -> int:
  """Does the runs that the standard input names; returns 0 when it ends.

  Args:
    arguments: The program's name, and the signal that ends a run with the standard input: whoever
      wanted it is gone.
  """
  _entry.before_end = run.reap_workers
  lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
  at_work = threading.Event()

  def read() -> None:
    with open(0, 'rb', buffering=0, closefd=False) as file:
      for line in file:
        at_work.set()  # Before the end of the input can be seen.
        lines.put(line)
    lines.put(b'')
    if at_work.is_set():
      os.kill(os.getpid(), int(arguments[1]))

  threading.Thread(target=read, daemon=True).start()
  # TensorFlow's advice on functions that are traced often: each run has its own.
  logging.getLogger('tensorflow').addFilter(lambda r: 'tf.function retracing' not in r.getMessage())
  with open(os.dup(sys.stdout.fileno()), 'wb', buffering=0) as answers:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Answers only go where they belong.
    while line := lines.get():
      job = Job(**json.loads(line))
      with _printing_to(job.log):
        answer = do(job)
      at_work.clear()
      try:
        answers.write(json.dumps(dataclasses.asdict(answer)).encode() + b'\n')
      except BrokenPipeError:  # The command was killed; whoever comes next finds the run.
        break
      if answer.is_last:
        break
      _forget()
      if not gc.get_freeze_count():  # What TensorFlow has loaded is not looked through each time.
        gc.freeze()
  _entry.exit_code = 0
  return 0


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
    return Answer('failed', f'{type(error).__name__}: {_line(error)}', is_last=True)
  return Answer('stopped' if outcome.exit_code else 'done')


def _forget() -> None:
  """Drops what a run leaves in the process and another could see."""
  user_code.forget()
  tf = sys.modules.get('tensorflow')
  if tf is not None and 'keras' in sys.modules:  # Not to load it for this.
    tf.keras.backend.clear_session()  # The numbers in layers' names begin at 1 again.
  gc.collect()


@contextlib.contextmanager
def _printing_to(path: str) -> Iterator[None]:
  """A context in which the standard output and error are appended to a file."""
  os.makedirs(os.path.dirname(path), exist_ok=True)
  numbers = (sys.stdout.fileno(), sys.stderr.fileno())
  saved = [os.dup(number) for number in numbers]
  with open(path, 'ab') as file:
    for number in numbers:
      os.dup2(file.fileno(), number)
  try:
    yield
  finally:
    sys.stdout.flush()
    sys.stderr.flush()
    for number, copy in zip(numbers, saved):
      os.dup2(copy, number)
      os.close(copy)


def _line(error: BaseException) -> str:
  return ' '.join(str(error).split())
