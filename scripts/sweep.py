"""Searches for good settings: trains runs with different ones and ranks them on validation data.

usage: python scripts/sweep.py --output_dir=DIR --grid=FLAG=VALUE,VALUE ... -- [train.py's flags]

Every combination of some values, each with three seeds, two runs at a time:
  python scripts/sweep.py --output_dir=runs/rates --grid=client_learning_rate=0.03,0.1,0.3 \\
      --grid=seed=0,1,2 --jobs=2 -- --algorithm=fed_avg --rounds=100

A hyperparameter counts only if the algorithm has it (FedAvg has no tau and is run once):
  python scripts/sweep.py --output_dir=runs/taus --grid=algorithm=fed_avg,fed_adam \\
      --grid=tau=1e-4,1e-3,1e-2 -- --rounds=100

Thirty points drawn near good ones (TPE); at 10, 30 and 90 rounds the best third goes on:
  python scripts/sweep.py --output_dir=runs/tuned --search=tpe --trials=30 --prune=asha \\
      --first_rung=10 --range=client_learning_rate=0.001,1,log \\
      --range=server_learning_rate=0.001,1,log -- --algorithm=fed_yogi --rounds=270

Each run has a folder in DIR, like one of train.py. DIR/logs/ has what it prints. The same command
again skips complete runs and goes on with the rest. Several commands, also on machines that share
DIR, divide the trials. Ctrl-C saves and ends. The table at the end is also in DIR/sweep.md, the
best first. `tensorboard --logdir=DIR` compares trials (HParams).
"""

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive._utils import atomic_files
from tff_adaptive_tasks import catalog

from .cli import command, fields, flags, search_space

_DRAWN = 'search=random or tpe'


def _check_metric_name(name: str, metric: str) -> None:
  if not metric.startswith(('validation_', 'inference_', 'train_')):
    raise ValueError(
      f'{name}={metric}: trials are selected on validation data, never on test data: give a column'
      ' of metrics.csv such as validation_accuracy.'
    )


@dataclasses.dataclass(frozen=True)
class _Sweep(fields.Group):
  """Its own flags; those after ' -- ' are of train.py."""

  TITLE = 'Sweep'

  grid: tuple[str, ...] = fields.flag(
    'A flag of train.py and its values: FLAG=VALUE,VALUE. Each trial is trained with each seed.'
    ' May be repeated.',
    [],
  )
  range: tuple[str, ...] = fields.flag(
    'A number of train.py for random and tpe to draw: FLAG=LOW,HIGH, or FLAG=LOW,HIGH,log. May be'
    ' repeated.',
    [],
    needs=_DRAWN,
  )
  output_dir: str | None = fields.flag("Folder in which the runs' folders are made.")
  search: str = fields.flag(
    'grid: every combination; random: random points; tpe: points near good ones, by the'
    " tree-structured Parzen estimator (Optuna's).",
    'grid',
    choices=('grid', 'random', 'tpe'),
  )
  trials: int | None = fields.count(
    'Number of trials of random and tpe. A later command may ask for more.', needs=_DRAWN
  )
  search_seed: int = fields.count(
    'Seeds what random and tpe draw.', 0, zero='the default', needs=_DRAWN
  )
  prune: str | None = fields.flag(
    'asha: asynchronous successive halving. Trials are compared at --first_rung rounds and then at'
    ' --reduction_factor times as many each; the best of them go on with their runs.',
    choices=('asha',),
  )
  first_rung: int | None = fields.count(
    'Rounds before trials are pruned. Default: a ninth of --rounds.', needs='prune'
  )
  reduction_factor: int = fields.count(
    'One of this number of trials goes on from a rung to the next, 2 or more.',
    3,
    low=2,
    needs='prune',
  )
  jobs: int = fields.count('Runs at a time.', 1)
  metric: str | None = fields.flag(
    "Column of metrics.csv by which trials are compared. Default: the task's metric on the"
    ' validation data.',
    check=_check_metric_name,
  )
  window: int | None = fields.count(
    'Number of last rounds over which the mean compares trials. Default: the last tenth, and'
    ' at most 100.'
  )
  target: float | None = fields.flag('Show after how many rounds the metric reached this value.')
  dry_run: bool = fields.flag('Only show the commands that would run.', False)


_FLAGS = flags.define(flags.of_group(_Sweep))


@command.entry('sweep.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Returns:
    0, also if runs diverged; 1 if a run failed, 2 for bad input, 128 + signal if stopped.
  """
  arguments = list(arguments)
  split = arguments.index('--') if '--' in arguments else len(arguments)
  own, fixed = arguments[:split], arguments[split + 1 :]
  hint = "train.py's flags go after ' -- '."
  try:
    rest = command.parse(_FLAGS, __doc__, own)
  except ValueError as error:
    unknown = 'Unknown command line flag' in str(error)
    raise ValueError(f'{error}; {hint}' if unknown else str(error)) from None
  if rest is None:
    return command.DONE
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; {hint}')
  flags.check(_FLAGS, _Sweep)
  if not _FLAGS.output_dir:
    raise ValueError('--output_dir is missing.')
  axes: dict[str, Any] = search_space.read(_FLAGS.grid, _FLAGS.range)
  _check_fixed(fixed, [*axes])
  given = flags.parse(['train.py', *fixed])
  if given is None:
    raise ValueError("--help belongs before ' -- '; for train.py's: scripts/train.py --help.")
  _check_flags([*axes])
  # In a grid without pruning each run is a trial: nothing is compared before all are done.
  apart = _FLAGS.search == 'grid' and _FLAGS.prune is None
  seeds = () if apart else axes.pop('seed', ())
  space = search_space.Space(axes, given, seeds)
  run = space.grid(_FLAGS.output_dir)[0] if _FLAGS.search == 'grid' else space.check()
  rung = _first_rung(run.training.rounds, run.output.rounds_per_evaluation)
  _check_metric(axes.get('task', ()))
  from .cli import study

  own_names = ('search', 'trials', 'search_seed', 'reduction_factor', 'metric', 'window')
  plan = study.Plan(first_rung=rung, **{name: _FLAGS[name].value for name in own_names})
  if not _FLAGS.dry_run:
    return _search(space, plan)
  points = space.points() if plan.search == 'grid' else plan.preview(space)
  for number, point in enumerate(points):
    folder = os.path.join(_FLAGS.output_dir, plan.folder(number, point))
    for run in space.runs(folder, point):
      command.show(' '.join(['train.py', *flags.command_line(run.given)]) + '\n')
  return command.DONE


def _check_fixed(fixed: Sequence[str], varied: Sequence[str]) -> None:
  """ValueError if a flag after ' -- ' would be overridden; in a --flagfile it may be."""
  given = {text.lstrip('-').partition('=')[0] for text in fixed if text.startswith('-')}
  known = {flag.name: flag.kind for flag in flags.table()}
  for name in _FLAGS:
    if (name not in known or name == 'output_dir') and {name, f'no{name}'} & given:
      raise ValueError(f"--{name} belongs before ' -- ': it is the sweep's.")
  for name in varied:
    if known[name] is not list and {name, f'no{name}'} & given:  # Repeated flags add up.
      raise ValueError(f"--{name} is varied and after ' -- ': give it in one place only.")


def _check_flags(varied: Sequence[str]) -> None:
  """ValueError if the sweep's own flags do not go together."""
  is_grid = _FLAGS.search == 'grid'
  if is_grid and not varied:
    raise ValueError('give --grid at least once.')
  if not is_grid and (not {*varied} - {'seed'} or _FLAGS.trials is None):
    raise ValueError(
      f'--search={_FLAGS.search} needs --trials=NUMBER and a --range or --grid to draw from.'
    )
  if importlib.util.find_spec('optuna') is None:
    raise ValueError('sweep.py needs Optuna: pip install tff-adaptive[search]')


def _check_metric(tasks: Sequence[str]) -> None:
  """ValueError if tasks are varied that may be judged by unlike metrics, and none is given."""
  metrics = [catalog.metric(task) for task in tasks]
  if _FLAGS.metric or len(metrics) < 2 or (None not in metrics and len({*metrics}) == 1):
    return
  found = ', '.join(f'{task} by {name or "its own"}' for task, name in zip(tasks, metrics))
  raise ValueError(
    f'--grid=task={",".join(tasks)}: trials are compared by one metric, and tasks are judged by'
    f' their own ({found}): give one that all have, such as --metric=validation_loss.'
  )


def _first_rung(rounds: int, every: int) -> int | None:
  """Returns --first_rung, or its default; ValueError if there is no evaluation then."""
  rung = _FLAGS.first_rung or -(-rounds // 9 // every) * every
  if _FLAGS.prune and (rung % every or rung >= rounds):
    raise ValueError(
      f'--first_rung={rung} must be a multiple of --rounds_per_evaluation={every}, and less than'
      f' --rounds={rounds}: trials are compared by their evaluations.'
    )
  return int(rung) if _FLAGS.prune else None


def _search(space: search_space.Space, plan: Any) -> int:
  """Does the trials and shows the table."""
  import rich.console
  import rich.live

  from .cli import study, trainers, trial_table

  trials = study.Study(_FLAGS.output_dir, space, plan)
  live = rich.live.Live(
    console=rich.console.Console(stderr=True), auto_refresh=False, transient=True
  )
  gone = trials.gone()
  failed: list[str] = []  # Of what was done, is gone and cannot be done again.

  def say(line: str) -> None:
    live.console.print(
      command.printable(line), markup=False, emoji=False, highlight=False, soft_wrap=True
    )

  def again(run: Any) -> trainers.Task:
    answer = yield run, None
    if answer.kind == 'failed':
      failed.append(run.output.output_dir)

  def tasks() -> Iterator[trainers.Task]:
    yield from map(again, gone)
    while (claim := trials.claim()) is not None:
      number = f'[{claim.number + 1}/{max(len(trials.views()), plan.trials or 0)}]'

      def numbered(line: str, number: str = number) -> None:
        say(f'{number} {line}')

      yield claim.do(numbered)

  def tick(number: int) -> None:
    if live.console.is_terminal:
      rows = trial_table.rows(trials.views(), plan.search == 'grid')
      caption = f'{number} at work; Ctrl-C saves and ends'
      live.update(trial_table.picture(rows, plan, caption), refresh=True)

  with live:
    stopped_by = trainers.share(tasks(), _FLAGS.jobs, say, tick)
  if stopped_by is not None:
    command.say(trainers.STOPPED)
    return 128 + stopped_by
  return max(_conclude(trials.views(), plan), command.FAILED if failed else command.DONE)


def _conclude(views: Sequence[Any], plan: Any) -> int:
  """Writes the table and what TensorBoard shows; returns the exit code."""
  from .cli import hparams, trial_table

  rows = trial_table.rows(views, plan.search == 'grid')
  found = trial_table.rank(rows, plan, _FLAGS.target)
  if found is not None:
    text = found.table.markdown()
    atomic_files.write_text(os.path.join(_FLAGS.output_dir, 'sweep.md'), text)
    command.show(text)
    hparams.write(_FLAGS.output_dir, found.metric, [run for v in views for run in v.folders])
    if found.best is not None:
      command.show(f'Best: {found.best}, in {rows[found.best][0].folders[0][0]}\n')
  return command.FAILED if any(view.state == 'failed' for view in views) else command.DONE


if __name__ == '__main__':
  sys.exit(main())
