"""Trains the runs of an experiment one after another in a process that they share."""

import os
from collections.abc import Mapping, Sequence

from . import command, flags, run_folder, run_table, search, worker, worker_pool
from .settings import Settings

_STOPPED = 'Stopped; the same command goes on from here.'


def train_all(groups: Mapping[str, Sequence[Settings]], label_by: Sequence[str]) -> int:
  """Trains all runs and writes a table of each group; what a run prints goes to its folder's logs/.

  Args:
    groups: Folder -> its runs; a run whose folder is complete is skipped.
    label_by: Settings that distinguish runs in the tables.

  Returns:
    0, 1 if a run failed or diverged, which does not keep others from being done; 2 if a table could
    not be made; 128 + signal if stopped.
  """
  jobs = [(folder, run) for folder, runs in groups.items() for run in runs]
  failed: dict[str, str] = {}
  with worker_pool.WorkerPool[str](1) as pool, worker_pool.stopping(pool.send) as received:
    for number, (folder, run) in enumerate(jobs, 1):
      if received:
        break
      is_complete = run_folder.is_complete(run.output_dir, run.rounds)
      command.say(
        f'[{number}/{len(jobs)}] {run.output_dir}{": complete already" if is_complete else ""}'
      )
      if not is_complete:
        answer = _train(pool, folder, run)
        if answer.kind != 'done' and not received:
          failed[run.output_dir] = f'{answer.kind}: {answer.reason}'
          command.say(f'{run.output_dir}: {failed[run.output_dir]}')
  if received:
    command.say(_STOPPED)
    return 128 + received[0]
  is_written = True
  for folder, runs in groups.items():
    folders = [run.output_dir for run in runs]
    note = '; '.join(f'{f}: {why}' for f, why in failed.items() if f in folders)
    path = os.path.join(folder, 'sweep.md')
    is_written &= run_table.write(path, folders, label_by=label_by, note=note)
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT


def _train(pool: worker_pool.WorkerPool[str], folder: str, run: Settings) -> worker.Answer:
  name = f'{os.path.basename(run.output_dir)}.log'
  log = os.path.abspath(os.path.join(folder, search.LOGS, name))
  pool.begin(folder, worker.Job(flags.command_line(run.given), log), worker.process_key(run))
  while True:
    for _, answer in pool.wait(1.0):
      return answer
