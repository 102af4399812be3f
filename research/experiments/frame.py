"""What experiments share: flags, runs that are trained and resumed, tables and their origin."""

import itertools
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, flags as run_flags, run_table, trainers
from scripts.cli.settings import Settings
from tff_adaptive._utils import suggestions
from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import run as run_lib

CONFIGS = pathlib.Path(__file__).parents[2] / 'scripts' / 'configs'
MNIST = ('mnist.npz', 'mnist_digits.npz')
Jobs = dict[str, list[Settings]]  # Folder -> its runs.
Stage = tuple[Callable[[], Jobs], Sequence[str]]  # Makes the runs; settings that tell them apart.


def flags(name: str, rounds: int, tuning_rounds: int) -> absl_flags.FlagValues:
  """The flags of every experiment, with its numbers of rounds."""
  made = absl_flags.FlagValues()
  for flag, default, words in (
    ('data_dir', None, "Folder with the tasks' files."),
    ('output_dir', f'runs/{name}', "The runs' folders."),
    ('results', f'results/{name}', 'Where to write: RESULTS.md, say.'),
    ('tuning_seed', '100', 'Of the runs that choose the rates.'),
  ):
    absl_flags.DEFINE_string(flag, default, words, flag_values=made)
  for flag, number, words in (
    ('rounds', rounds, 'Rounds of a run that counts.'),
    ('tuning_rounds', tuning_rounds, 'Rounds of one that chooses the rates.'),
  ):
    absl_flags.DEFINE_integer(flag, number, words, lower_bound=1, flag_values=made)
  absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=made)
  absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Of the runs that count.', flag_values=made)
  return made


def check(
  given: absl_flags.FlagValues,
  known: Mapping[str, Collection[str]],
  files: Mapping[str, Sequence[str]],
) -> None:
  """Refuses bad flags before hours are spent on runs."""
  for flag, names in known.items():
    for name in given[flag].value:
      if name not in names:
        raise ValueError(f'--{flag}: {suggestions.unknown(flag.rstrip("s"), name, names)}')
  for flag in (*known, 'seeds'):
    if not given[flag].value:
      raise ValueError(f'--{flag}= is empty: give one value or more, or leave it out.')
  for flag, seeds in (('seeds', given.seeds), ('tuning_seed', [given.tuning_seed])):
    for seed in seeds:
      if not seed.isdecimal():
        raise ValueError(f'--{flag}={seed}: give whole numbers from 0 on, such as 0,1,2.')
  if given.tuning_seed in given.seeds:
    raise ValueError(f'--tuning_seed={given.tuning_seed} is one of --seeds: give another.')
  for task, names in {} if given.report_only else files.items():
    paths = [os.path.join(given.data_dir or '', name) for name in names]
    if names and not (given.data_dir and any(map(os.path.isfile, paths))):
      raise ValueError(f'{task} needs a folder with {" or ".join(names)}: give --data_dir.')


def run(given: absl_flags.FlagValues, stages: Iterable[Stage], write: Callable[[], None]) -> int:
  """Trains what is not complete, stage after stage, and reports; returns the exit code."""
  command.check_output('results', given.results)
  code = command.DONE
  for jobs, label_by in () if given.report_only else stages:
    code = max(code, train_all(jobs(), label_by))
    if code > command.FAILED:  # A run that diverges is a result too.
      return code
  write()
  command.show(f'{given.results}.* is written.\n')
  return code


def train_all(groups: Jobs, label_by: Sequence[str]) -> int:
  """Trains all runs and writes a table of each group; what a run prints goes to its folder's logs/.

  Returns:
    0, 1 if a run failed or diverged, which does not keep others from being done; 2 if a table could
    not be made; 128 + signal if stopped.
  """
  every = [run for runs in groups.values() for run in runs]
  failed: dict[str, str] = {}

  def task(number: int, run: Settings) -> trainers.Task:
    command.say(f'[{number}/{len(every)}] {run.output.output_dir}')
    answer = yield run, None
    if answer.kind in ('failed', 'diverged'):
      failed[run.output.output_dir] = f'{answer.kind}: {answer.reason}'

  tasks = itertools.starmap(task, enumerate(every, 1))
  stopped_by = trainers.share(tasks, lambda: 1, trainers.LocalHost)
  if stopped_by is not None:
    command.say(trainers.STOPPED)
    return 128 + stopped_by
  is_written = True
  for folder, runs in groups.items():
    folders = [run.output.output_dir for run in runs]
    note = '; '.join(f'{f}: {why}' for f, why in failed.items() if f in folders)
    path = os.path.join(folder, 'sweep.md')
    is_written &= run_table.write(path, folders, label_by=label_by, note=note)
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT


def settings(*arguments: str) -> dict[str, Any]:
  """What flags of scripts/train.py ask for, but for the seed."""
  asked = run_flags.parse(['', *arguments]) or {}
  return {name: value for name, value in asked.items() if name != 'seed'}


def best(folder: str, names: Sequence[str], metric: str | None = None) -> dict[str, Any]:
  """Some settings of the run in a folder that was best, by the task's metric on validation data."""
  tried = run_lib.find_runs([folder])
  _, found = scores.best_runs(tried, metric or tables.default_metric(tried))
  return {name: found[0].settings[name] for name in names if found[0].settings.get(name)}


def paragraph(text: str) -> str:
  """Returns a text on one line."""
  return ' '.join(text.split()) + '\n'


def origin(name: str, arguments: str, members: Sequence[run_lib.Run], more: str = '') -> str:
  """The command, the machine, the dates and the versions of some runs."""
  dates = sorted({run.config['started'][:10] for run in members})
  revisions = sorted({str(run.config.get('git_revision'))[:10] for run in members})
  seconds = sum(run.summary()['seconds_training'] for run in members)
  versions = ', '.join(f'{name} {v}' for name, v in members[0].config['versions'].items())
  return paragraph(f"""
    Made by `python -m research.experiments.{name}{arguments}`. {more} {len(members)} runs,
    {seconds / 60:.0f} minutes of training on {len(os.sched_getaffinity(0))} CPU cores shared with
    other work; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}; revision
    {', '.join(revisions)}; {versions}.""")
