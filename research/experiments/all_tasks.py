"""Trains every task for some rounds with FedYogi and FedAvg: does it learn, and at what cost?

usage: python -m research.experiments.all_tasks --data_dir=DIR [--flag=value ...]

Writes RESULTS.md: the loss before and after, seconds a round, the share of the round spent on
opening and preparing the cohort's data, and peak memory. The same command again skips what is
complete and goes on with the rest; Ctrl-C ends after saving.

  python -m research.experiments.all_tasks --data_dir=DIR --results=results/tasks
  python -m research.experiments.all_tasks --tasks=digits --rounds=30

Rates and sizes are those of scripts/train.py, but for tasks whose rounds take minutes on a CPU:
these have fewer clients, which the table shows. Tasks that learn slowly get several times --rounds.
"""

import json
import os
import statistics
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command, flags, grid, train_process
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib
from tff_adaptive_tasks import catalog

from . import frame

_FLAGS = frame.flags('tasks', seeds=False)
absl_flags.DEFINE_list('tasks', catalog.names(), 'Tasks.', flag_values=_FLAGS)
absl_flags.DEFINE_list('algorithms', ['fed_yogi', 'fed_avg'], 'Algorithms.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 20, 'Rounds of each run.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 0, 'Seed.', flag_values=_FLAGS)

# Tasks whose usual round takes minutes on two cores.
_REDUCED = {
  'stackoverflow_nwp': {'clients_per_round': 10, 'max_examples_per_client': 100},
}
# ResNet-18 begins to learn late on some twenty images a client: so many times --rounds.
_LONGER = {'cifar100': 8, 'cifar10': 8}


@command.entry('all_tasks.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  frame.check(_FLAGS, {'tasks': catalog.names()}, {})
  jobs = {} if _FLAGS.report_only else {task: _jobs(task) for task in _FLAGS.tasks}
  command.check_output('results', _FLAGS.results)
  failed = command.DONE
  for task, of_task in jobs.items():  # Each in a process of its own, whose memory is measured.
    folder = os.path.join(_FLAGS.output_dir, task)
    code = train_process.train_all(of_task, folder, ['algorithm'], 'validation_loss')
    if code > command.FAILED:
      return code  # Stopped by a signal.
    failed = failed or code
  atomic_files.write_text(f'{_FLAGS.results}.md', report(_FLAGS.output_dir))
  command.show(f'{_FLAGS.results}.md is written.\n')
  return failed


def _jobs(task: str) -> list[grid.Settings]:
  """The runs of a task: one for each algorithm."""
  rounds = _FLAGS.rounds * _LONGER.get(task, 1)
  given = {'task': task, 'rounds': rounds, 'rounds_per_evaluation': rounds, 'seed': _FLAGS.seed}
  given |= _REDUCED.get(task, {})
  if _FLAGS.data_dir and task not in catalog.OFFLINE:
    given['data_dir'] = _FLAGS.data_dir
  folder = os.path.join(_FLAGS.output_dir, task)
  return grid.jobs(folder, {'algorithm': _FLAGS.algorithms}, given)


def report(folder: str) -> str:
  """The text of RESULTS.md, of the complete runs in a folder; ValueError if there is none."""
  order = {task: i for i, task in enumerate(catalog.names())}

  def key(run: run_lib.Run) -> tuple[str, str, str]:
    return str(order[run.settings['task']]), run.settings['algorithm'], ''

  cells, _ = frame.collect(folder, key)
  found = [run for _, (run, *_) in sorted(cells.items(), key=lambda c: (int(c[0][0]), c[0][1]))]
  text = (
    '# Every task, trained for some rounds\n\nSeconds a round are medians; "data" is'
    ' the time that a round waits for its cohort to be opened and prepared, which happens while the'
    ' round before is computed. Peak memory is that of the whole process, TensorFlow and the'
    ' validation data included.\n\n'
  )
  heading = [
    *('task, algorithm', 'rounds', 'parameters', 'clients x examples'),
    *('training loss, first 3 rounds', 'last 3', 'validation loss, before', 'after'),
    *('s a round', 'data, % of it', 'peak MB'),
  ]
  text += tables.markdown(heading, [_row(run) for run in found]) + '\nData: '
  sources = {run.settings['task']: run.config['data']['source'] for run in found}
  text += '; '.join(
    f'{task}: {run_lib.without_folders(source)}' for task, source in sources.items()
  )
  text += '.\n\nRates are the defaults of each task.'
  for task in sorted({*sources} & {*_REDUCED}):
    reduced = ', '.join(f'`{flag}`' for flag in flags.command_line(_REDUCED[task]))
    text += f' Reduced: {reduced} ({task}).'
  given = ''.join(
    f' --{name}={",".join(value) if isinstance(value, list) else value}'
    for name in ('tasks', 'algorithms', 'rounds', 'seed')
    if (value := _FLAGS[name].value) != _FLAGS[name].default
  )
  return f'{text} {frame.origin("all_tasks", f"{given} --data_dir=DIR", found)}'


def _row(run: run_lib.Run) -> list[str]:
  rows, settings = run.rows[1:], run.settings
  train = [row['train_loss'] for row in rows if 'train_loss' in row]
  seconds = [row['seconds_round'] for row in rows]
  waiting = sum(row['seconds_data'] for row in rows[1:])
  # The data of the first round are waited for in whole.
  share = f'{100 * waiting / (waiting + sum(seconds[1:])):.1f}' if len(rows) > 1 else ''
  validation = list(run.curve('validation_loss').values())
  mean = statistics.fmean(row['examples'] / row['clients'] for row in rows)
  with open(os.path.join(run.folder, 'summary.json'), encoding='utf-8') as file:
    peak = json.load(file)['peak_memory_mb']
  return [
    f'{settings["task"]}, {settings["algorithm"]}',
    f'{settings["rounds"]}',
    f'{run.config["num_parameters"]:,}',
    f'{settings["clients_per_round"]} x {mean:.0f}',
    f'{statistics.fmean(train[:3]):.4g}',
    f'{statistics.fmean(train[-3:]):.4g}',
    f'{validation[0]:.4g}',
    f'{validation[-1]:.4g}',
    f'{statistics.median(seconds):.2f}',
    share,
    f'{peak:.0f}',
  ]


if __name__ == '__main__':
  sys.exit(main())
