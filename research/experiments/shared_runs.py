"""Trains given runs, resumably."""

import os
import threading
from collections.abc import Mapping, Sequence

from scripts.cli import command, run_table, trainers
from scripts.cli.settings import Settings


def train_all(
  groups: Mapping[str, Sequence[Settings]],
  label_by: Sequence[str] | None = None,
  metric: str | None = None,
  *,
  jobs: int = 1,
) -> int:
  """Trains all runs and writes a table of each group; what a run prints goes to its folder's logs/.

  Returns:
    0, 1 if a run failed or diverged, which does not keep others from being done; 2 if a table could
    not be made; 128 + signal if stopped.
  """
  every = [(folder, run) for folder, runs in groups.items() for run in runs]
  waiting, lock = enumerate(every, 1), threading.Lock()
  failed: dict[str, str] = {}

  def work(trainer: trainers.Trainer) -> None:
    while not trainer.asked:
      with lock:
        number, (folder, run) = next(waiting, (0, (None, None)))
      if folder is None or run is None:
        return
      command.say(f'[{number}/{len(every)}] {run.output.output_dir}')
      answer = trainer.train(run, folder)
      if answer.kind in ('failed', 'diverged'):
        failed[run.output.output_dir] = f'{answer.kind}: {answer.reason}'

  stopped_by = trainers.in_threads(work, lambda: jobs, trainers.LocalHost)
  if stopped_by is not None:
    command.say(trainers.STOPPED)
    return 128 + stopped_by
  is_written = True
  for folder, runs in groups.items():
    folders = [run.output.output_dir for run in runs]
    note = '; '.join(f'{f}: {why}' for f, why in failed.items() if f in folders)
    path = os.path.join(folder, 'sweep.md')
    is_written &= run_table.write(path, folders, label_by=label_by, metric=metric, note=note)
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT
