"""Searches for good settings: trains runs with different ones and ranks them on validation data.

usage: {sweep} --output_dir=DIR --grid=FLAG=VALUE,VALUE ... -- [train.py's flags]

Every combination of some values, each with three seeds, two runs at a time:
  {sweep} --output_dir=runs/rates --grid=client_learning_rate=0.03,0.1,0.3 \\
      --grid=seed=0,1,2 --jobs=2 -- --algorithm=fed_avg --rounds=100

A hyperparameter counts only if the algorithm has it (FedAvg has no tau and is run once):
  {sweep} --output_dir=runs/taus --grid=algorithm=fed_avg,fed_adam \\
      --grid=tau=1e-4,1e-3,1e-2 -- --rounds=100

Thirty points drawn near good ones (TPE); at 10, 30 and 90 rounds the best third continues:
  {sweep} --output_dir=runs/tuned --search=tpe --trials=30 --prune=asha \\
      --first_rung=10 --range=client_learning_rate=0.001,1,log \\
      --range=server_learning_rate=0.001,1,log -- --algorithm=fed_yogi --rounds=270

Each run has a folder in DIR, like a run of train.py. DIR/logs/ has the output of the runs. Ctrl-C
saves the runs and ends them. The same command skips complete runs and continues the others. Several
commands, also on machines that share DIR, divide the trials. The table at the end, with the best
trial first, is also in DIR/sweep.md. `tensorboard --logdir=DIR` shows the curves of the runs, and
`optuna-dashboard sqlite:///DIR/study.sqlite` the trials.
"""

import dataclasses
import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from tff_adaptive._utils import atomic_files
from tff_adaptive_tasks import catalog

from .cli import command, flags, plan as plan_lib, search_space

_FLAGS = flags.define(flags.of_group(plan_lib.Plan))


@command.entry('sweep.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Returns:
    0, also if runs diverged; 1 if a run failed; 2 for bad input; 128 + signal if a signal ended it.
  """
  of_sweep, of_runs = _split(arguments)
  try:
    if not command.read(_FLAGS, __doc__, of_sweep):
      return command.DONE
  # The likeliest mistake is a flag of the runs on the wrong side of ' -- '.
  except ValueError as error:
    raise ValueError(f"{error} (Flags of train.py go after ' -- '.)") from None
  plan: plan_lib.Plan = flags.check(_FLAGS, plan_lib.Plan)
  folder = plan.output_dir
  if not folder:
    raise ValueError('--output_dir is missing.')
  space = _space(plan, of_runs)
  # A grid is checked whole, because all of it will be run.
  if plan.is_grid:
    run = space.grid(folder)[0]
  else:
    run = space.check()
  plan = dataclasses.replace(plan, first_rung=_first_rung(plan, run))
  _check_metric(plan, space.axes.get('task', ()))
  if plan.dry_run:
    return _show_commands(folder, space, plan)
  # Only now: it imports Optuna, and bad flags are refused in a moment.
  from .cli import search

  code = search.search(folder, space, plan)
  return code or _show_table(folder, space, plan)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """Returns the arguments before ' -- ', and those after it."""
  arguments = list(arguments)
  if '--' not in arguments:
    return arguments, []
  position = arguments.index('--')
  return arguments[:position], arguments[position + 1 :]


def _space(plan: plan_lib.Plan, of_runs: Sequence[str]) -> search_space.Space:
  """Returns what the flags vary. Raises ValueError if they do not go together."""
  axes: dict[str, Any] = search_space.read(plan.grid, plan.range)
  _check_fixed(of_runs, [*axes])
  given = flags.parse(['train.py', *of_runs])
  if given is None:
    raise ValueError("--help belongs before ' -- '; for train.py's: scripts/train.py --help.")
  search_space.check_flags_of_runs(given)
  _check_flags(plan, [*axes])
  # In a grid without pruning each run is a trial, because no runs are compared before the end.
  if plan.is_grid and plan.prune is None:
    return search_space.Space(axes, given)
  # Of a search the seeds are no axis: a trial has a run for each of them, and their mean as its
  # score.
  seeds = axes.pop('seed', ())
  return search_space.Space(axes, given, seeds)


def _check_fixed(fixed: Sequence[str], varied: Sequence[str]) -> None:
  """Raises ValueError if a flag after ' -- ' (not in a --flagfile) is the sweep's or varied."""
  given = {text.lstrip('-').partition('=')[0] for text in fixed if text.startswith('-')}
  kinds = {flag.name: flag.kind for flag in flags.table()}
  for name in _FLAGS:
    is_of_runs = name in kinds and name != 'output_dir'
    if not is_of_runs and not given.isdisjoint(_spellings(name)):
      raise ValueError(f"--{name} belongs before ' -- ': it is the sweep's.")
  for name in varied:
    is_repeatable = kinds[name] is list  # Then the values add up.
    if not is_repeatable and not given.isdisjoint(_spellings(name)):
      raise ValueError(f"--{name} is varied and after ' -- ': give it in one place only.")


def _spellings(flag: str) -> tuple[str, str]:
  """Returns how a flag may be written: a truth value also with 'no' before it."""
  return flag, f'no{flag}'


def _check_flags(plan: plan_lib.Plan, varied: Sequence[str]) -> None:
  """Raises ValueError if the sweep's own flags do not go together, or Optuna is missing."""
  if plan.is_grid and not varied:
    raise ValueError('give --grid at least once.')
  is_drawn = bool(set(varied) - {'seed'})
  if not plan.is_grid and (not is_drawn or plan.trials is None):
    raise ValueError(
      f'--search={plan.search} needs --trials=NUMBER and a --range or --grid to draw from.'
    )
  if importlib.util.find_spec('optuna') is None:
    raise ValueError('sweep.py needs Optuna: pip install tff-adaptive[search]')


def _check_metric(plan: plan_lib.Plan, tasks: Any) -> None:
  """Raises ValueError if tasks with different metrics are varied and --metric is not given."""
  metrics = [catalog.metric(task) for task in tasks]
  is_same = None not in metrics and len(set(metrics)) == 1
  if plan.metric or len(metrics) < 2 or is_same:
    return
  judged_by = ', '.join(f'{task} by {name or "its own"}' for task, name in zip(tasks, metrics))
  raise ValueError(
    f'--grid=task={",".join(tasks)}: trials are compared by one metric, and tasks are judged by'
    f' their own ({judged_by}): give one that all have, such as --metric=validation_loss.'
  )


def _first_rung(plan: plan_lib.Plan, run: Any) -> int | None:
  """Returns the round of the first pruning, None without --prune. Raises ValueError if invalid."""
  if not plan.prune:
    return None
  rounds = run.training.rounds
  every = run.output.rounds_per_evaluation
  rung = plan.first_rung
  if rung is None:  # A ninth of the rounds, up to the next evaluation.
    rung = math.ceil(rounds / 9 / every) * every
  # Trials are compared by evaluations, so a rung has to be a round with one.
  is_evaluated = rung % every == 0 and run.output.virtual_seconds_per_evaluation is None
  if not is_evaluated or rung >= rounds:
    raise ValueError(
      f'--first_rung={rung} must be a multiple of --rounds_per_evaluation={every}, and less than'
      f' --rounds={rounds}, without --virtual_seconds_per_evaluation: evaluations are compared.'
    )
  return rung


def _show_commands(folder: str, space: search_space.Space, plan: plan_lib.Plan) -> int:
  """Prints the commands of the runs that are known before there are results."""
  from .cli import study

  # Of a search, the points that are drawn without scores.
  if plan.is_grid:
    points = space.points()
  else:
    points = study.preview(plan, space)
  for number, point in enumerate(points):
    for run in space.runs(os.path.join(folder, plan.folder(number, point)), point):
      command.show(' '.join(['train.py', *flags.command_line(run.given)]) + '\n')
  return command.DONE


def _show_table(folder: str, space: search_space.Space, plan: plan_lib.Plan) -> int:
  """Prints the table, and writes it to sweep.md. Returns 1 if a trial has failed, else 0."""
  from .cli import study, trial_table

  views = study.Study(folder, space, plan).views()
  rows = trial_table.rows(views, plan.is_grid)
  ranked = trial_table.rank(rows, plan)
  if ranked is not None:
    table, best = ranked
    atomic_files.write_text(os.path.join(folder, 'sweep.md'), table.markdown())
    command.show(table.markdown())
    if best is not None:
      command.show(f'Best: {best}, in {rows[best][0].folders[0][0]}\n')
  if any(view.state == 'failed' for view in views):
    return command.FAILED
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
