"""Trains in processes of their own, which end with this one.

For what measures a process, its memory or its time: scripts/sweep.py shares processes among runs.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from . import child_process, command, flags, run_folder, run_table
from .settings import Settings

_STOPPED = 'Stopped; the same command goes on from here.'
_TRAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'train.py')


def train(settings: Settings) -> tuple[int, int | None]:
  """Runs train.py; returns its exit code, and the signal that stopped this process meanwhile.

  The run has a session of its own, so that Ctrl-C reaches it once: through this process. It ends,
  after saving, with this process, however that ends.
  """
  received: list[int] = []
  child: subprocess.Popen[bytes] | None = None

  def forward(number: int, unused_frame: Any) -> None:
    received.append(number)
    if child is not None:
      child.send_signal(number)

  before = [(n, signal.signal(n, forward)) for n in (signal.SIGINT, signal.SIGTERM)]
  try:
    child = subprocess.Popen(
      [sys.executable, _TRAIN, *flags.command_line(settings.given)],
      start_new_session=True,
      preexec_fn=child_process.end_with_parent,
    )
    if received:  # While it was started.
      child.send_signal(received[0])
    code = child.wait()
  finally:
    for number, handler in before:
      signal.signal(number, handler)
  return code, received[0] if received else None


def train_all(
  jobs: Sequence[Settings],
  output_dir: str,
  label_by: Sequence[str] | None = None,
  metric: str | None = None,
) -> int:
  """Trains runs one after another, each in a process of its own, and writes their table.

  Args:
    jobs: What to train; a run whose folder is complete is skipped.
    output_dir: Where sweep.md goes.
    label_by: Settings that distinguish runs in the table; default: all that differ.
    metric: The table's column of metrics.csv; default: the task's metric.

  Returns:
    0, 1 if a run failed, 2 if the table could not be made, 128 + signal if stopped.
  """
  failed = []
  for number, job in enumerate(jobs, 1):
    folder = job.output_dir
    if run_folder.is_complete(folder, job.rounds):
      command.say(f'[{number}/{len(jobs)}] {folder}: complete already')
      continue
    command.say(f'[{number}/{len(jobs)}] {folder}')
    try:
      code, stopped_by = train(job)
    except KeyboardInterrupt:  # Between two runs.
      code, stopped_by = 0, signal.SIGINT
    if stopped_by:
      command.say(_STOPPED)
      return 128 + stopped_by
    if code:
      failed.append(f'{folder} (exit code {code})')
  is_written = run_table.write(
    os.path.join(output_dir, 'sweep.md'),
    [job.output_dir for job in jobs],
    label_by=label_by,
    metric=metric,
    note='Failed: ' + ', '.join(failed) if failed else '',
  )
  for line in failed:
    command.say(f'failed: {line}')
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT
