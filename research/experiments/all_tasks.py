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
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, flags, grid, resolve, shared_runs
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib
from tff_adaptive_tasks import catalog

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list('tasks', None, 'Tasks; by default all.', flag_values=_FLAGS)
absl_flags.DEFINE_list(
  'algorithms', ['fed_yogi', 'fed_avg'], 'Algorithms of scripts/train.py.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer('rounds', 20, 'Rounds of each run.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 0, 'Seed.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, 'Folder with data files.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir', 'runs/all_tasks', "Where the runs' folders go.", flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results', 'results/tasks', 'Where to write: RESULTS.md.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)

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
  chosen = _FLAGS.tasks or catalog.names()
  for task in chosen:
    resolve.check_name('tasks', task, catalog.names())
  command.check_output('results', _FLAGS.results)
  jobs = {} if _FLAGS.report_only else {task: _jobs(task) for task in chosen}
  failed = command.DONE
  for task, those in jobs.items():
    folder = os.path.join(_FLAGS.output_dir, task)
    code = shared_runs.train_all({folder: those}, ['algorithm'], 'validation_loss', alone=True)
    if code > command.FAILED:
      return code  # Stopped by a signal.
    failed = failed or code
  atomic_files.write_text(f'{_FLAGS.results}.md', report(_FLAGS.output_dir))
  command.show(f'{_FLAGS.results}.md is written.\n')
  return failed


def _jobs(task: str) -> list[grid.Settings]:
  """The runs of a task: one for each algorithm."""
  rounds = _FLAGS.rounds * _LONGER.get(task, 1)
  given = {
    'task': task,
    'rounds': rounds,
    'rounds_per_evaluation': rounds,
    'seed': _FLAGS.seed,
    **_REDUCED.get(task, {}),
  }
  if _FLAGS.data_dir and task not in catalog.OFFLINE:
    given['data_dir'] = _FLAGS.data_dir
  folder = os.path.join(_FLAGS.output_dir, task)
  return grid.jobs(folder, {'algorithm': _FLAGS.algorithms}, given)


def report(folder: str) -> str:
  """The text of RESULTS.md, of the complete runs in a folder; ValueError if there is none."""
  # A run that was stopped at once has a folder, but no summary or rows.
  begun = [path for path, _, names in os.walk(folder) if 'summary.json' in names]
  found = [run for run in map(run_lib.load_run, sorted(begun)) if run.summary()['is_complete']]
  if not found:
    raise ValueError(f'no run in {folder} is complete.')
  order = {task: i for i, task in enumerate(catalog.names())}
  for run in found:
    if run.settings['task'] not in order:
      raise ValueError(f'{run.folder} is of no task of this version: leave it out.')
  found.sort(key=lambda run: (order[run.settings['task']], run.settings['algorithm']))
  heading = [
    'task, algorithm',
    'rounds',
    'parameters',
    'clients x examples',
    'training loss, first 3 rounds',
    'last 3',
    'validation loss, before',
    'after',
    's a round',
    'data, % of it',
    'peak MB',
  ]
  text = (
    '# Every task, trained for some rounds\n\nSeconds a round are medians; "data" is'
    ' the time that a round waits for its cohort to be opened and prepared, which happens while the'
    ' round before is computed. Peak memory is that of the whole process, TensorFlow and the'
    ' validation data included.\n\n'
  )
  text += tables.markdown(heading, [_row(run) for run in found])
  first = found[0].config
  versions = ', '.join(f'{k} {v}' for k, v in first['versions'].items())
  text += '\nData: ' + '; '.join(
    f'{task}: {run_lib.without_folders(source)}'
    for task, source in {r.settings['task']: r.config['data']['source'] for r in found}.items()
  )
  text += '.\n\nRates are the defaults of each task.'
  for task in sorted({run.settings['task'] for run in found} & {*_REDUCED}):
    reduced = ', '.join(f'`{flag}`' for flag in flags.command_line(_REDUCED[task]))
    text += f' Reduced: {reduced} ({task}).'
  return text + f' Made by `{_command(found)}`; {first["started"][:10]}; {versions}.\n'


def _command(found: Sequence[run_lib.Run]) -> str:
  """The command line that makes these runs."""
  line = 'python -m research.experiments.all_tasks'
  for name, values, usual in (
    ('tasks', [run.settings['task'] for run in found], catalog.names()),
    ('algorithms', [run.settings['algorithm'] for run in found], _FLAGS['algorithms'].default),
    (
      'rounds',
      [run.settings['rounds'] // _LONGER.get(run.settings['task'], 1) for run in found],
      [_FLAGS['rounds'].default],
    ),
    ('seed', [run.settings['seed'] for run in found], [_FLAGS['seed'].default]),
  ):
    if {*values} != {*usual}:
      line += f' --{name}={",".join(map(str, dict.fromkeys(values)))}'
  return line + (' --data_dir=DIR' if any(run.settings['data_dir'] for run in found) else '')


def _row(run: run_lib.Run) -> list[str]:
  rows, settings = run.rows[1:], run.settings
  train = [row['train_loss'] for row in rows if 'train_loss' in row]
  seconds = [row['seconds_round'] for row in rows]
  waiting = sum(row['seconds_data'] for row in rows[1:])
  # The data of the first round are waited for in whole.
  share = f'{100 * waiting / (waiting + sum(seconds[1:])):.1f}' if len(rows) > 1 else ''
  validation = list(run.curve('validation_loss').values())
  mean = statistics.fmean(row['examples'] / row['clients'] for row in rows)
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
    f'{_written_summary(run)["peak_memory_mb"]:.0f}',
  ]


def _written_summary(run: run_lib.Run) -> Mapping[str, Any]:
  with open(os.path.join(run.folder, 'summary.json'), encoding='utf-8') as file:
    return json.load(file)


if __name__ == '__main__':
  sys.exit(main())
