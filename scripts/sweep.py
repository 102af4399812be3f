"""Searches for good settings: trains runs with different ones and ranks them on validation data.

usage: python scripts/sweep.py --output_dir=DIR --grid=FLAG=VALUE,VALUE ... -- [train.py's flags]

Every combination of some values, each with three seeds, two runs at a time:
  python scripts/sweep.py --output_dir=runs/rates --grid=client_learning_rate=0.03,0.1,0.3 \\
      --grid=seed=0,1,2 --jobs=2 -- --algorithm=fed_avg --rounds=100

A hyperparameter counts where the algorithm has it (here tau: FedAvg has none, and is run once):
  python scripts/sweep.py --output_dir=runs/taus --grid=algorithm=fed_avg,fed_adam \\
      --grid=tau=1e-4,1e-3,1e-2 -- --rounds=100

Thirty points drawn near to what was good (TPE); at 10, 30, 90 rounds only the best third goes on:
  python scripts/sweep.py --output_dir=runs/tuned --search=tpe --trials=30 --prune=asha \\
      --first_rung=10 --range=client_learning_rate=0.001,1,log \\
      --range=server_learning_rate=0.001,1,log -- --algorithm=fed_yogi --rounds=270

Each run has a folder of its own in DIR, like one of train.py, and what it prints is in DIR/logs/.
The same command again skips what is complete and goes on with the rest; started several times, on
machines that share DIR too, the commands divide the trials; --ray=auto has a Ray cluster's nodes do
the runs. Ctrl-C ends after saving. At the end a table, also in DIR/sweep.md, the best first;
`tensorboard --logdir=DIR` compares trials (HParams).
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from tff_adaptive_tasks import catalog

from .cli import command, flags, grid, run_folder, search_space, trial_pool
from .cli.settings import Settings

_STOPPED = 'Stopped; the same command goes on from here.'
_SEARCHES = ('grid', 'random', 'tpe')
_FLAGS = absl_flags.FlagValues()
_multi = functools.partial(absl_flags.DEFINE_multi_string, flag_values=_FLAGS)
_string = functools.partial(absl_flags.DEFINE_string, flag_values=_FLAGS)
_integer = functools.partial(absl_flags.DEFINE_integer, flag_values=_FLAGS)
_multi(
  'grid',
  [],
  'A flag of train.py and its values: FLAG=VALUE,VALUE. Of seed: each trial is trained with each.',
)
_multi(
  'range',
  [],
  'A number of train.py for random and tpe to draw: FLAG=LOW,HIGH, or FLAG=LOW,HIGH,log.',
)
_string('output_dir', None, "Where the runs' folders go.")
_string(
  'search',
  'grid',
  'grid: every combination; random: drawn; tpe: drawn near to what was good, by the'
  " tree-structured Parzen estimator (Optuna's).",
)
_integer('trials', None, 'How many trials random and tpe do; a later command may ask for more.')
_integer('search_seed', 0, 'Seeds what random and tpe draw.')
_string(
  'prune',
  None,
  'asha: asynchronous successive halving. Trials are compared at --first_rung rounds and then at'
  ' --reduction_factor times as many each; the best of them go on with their runs.',
)
_integer('first_rung', None, 'Rounds before a trial may be pruned. Default: a ninth of --rounds.')
_integer('reduction_factor', 3, 'One trial in so many goes on from a rung to the next.')
_integer('jobs', None, 'Runs at a time, each in a process. Default 1; with --ray as many as fit.')
_string(
  'ray',
  None,
  'Runs are done on the nodes of a Ray cluster: local, auto or host:port, as of train.py. All nodes'
  ' must see --output_dir, and what the flags name, under the same path.',
)
_integer('cpus_per_job', None, 'Processors that Ray reserves for a run. Default 1.')
absl_flags.DEFINE_float(
  'gpus_per_job', None, 'GPUs likewise; 0.5 is half of one. Default 0.', flag_values=_FLAGS
)
_string(
  'metric',
  None,
  'Column of metrics.csv by which trials are compared: the mean over the last 100 rounds. Default:'
  " the task's metric on the validation data.",
)
absl_flags.DEFINE_float(
  'target', None, 'Show after how many rounds the metric reached this value.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('dry_run', False, 'Only say what would be run.', flag_values=_FLAGS)


@command.entry('sweep.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Returns:
    0, also if runs diverged; 1 if a run failed, 2 for bad input, 128 + signal if stopped.
  """
  arguments = list(arguments)
  split = arguments.index('--') if '--' in arguments else len(arguments)
  own, fixed = arguments[:split], arguments[split + 1 :]
  rest = _parse(own)
  if rest is None:
    return command.DONE
  if rest:
    raise ValueError(f"unexpected argument {rest[0]!r}; train.py's flags go after ' -- '.")
  if not _FLAGS.output_dir:
    raise ValueError('--output_dir is missing.')
  axes = grid.axes(_FLAGS.grid)
  ranges = search_space.ranges(_FLAGS.range, axes)
  _check_fixed(fixed, [*axes, *ranges])
  given = flags.parse(['train.py', *fixed])
  if given is None:
    raise ValueError("--help belongs before ' -- '; for train.py's: scripts/train.py --help.")
  _check_flags(axes, ranges)
  # In a grid without pruning each run is a trial: nothing is compared before all are done.
  apart = _FLAGS.search == 'grid' and _FLAGS.prune is None
  seeds = () if apart else axes.pop('seed', ())
  space = search_space.Space(axes, ranges, tuple(seeds), given)
  first = _check_runs(space)
  _check_metric(axes.get('task', ()))
  rung = _first_rung(first) if _FLAGS.prune else None
  if _FLAGS.dry_run:
    _show_runs(space)
    return command.DONE
  return _search(space, rung)


def _parse(arguments: Sequence[str]) -> list[str] | None:
  """As `command.parse`; says where train.py's flags go."""
  try:
    return command.parse(_FLAGS, __doc__, arguments)
  except ValueError as error:
    if 'Unknown command line flag' not in str(error):
      raise
    raise ValueError(f"{error}; train.py's flags go after ' -- '.") from None


def _check_fixed(fixed: Sequence[str], varied: Sequence[str]) -> None:
  """ValueError if a flag after ' -- ' would be overridden; in a --flagfile it may be."""
  given = {text.lstrip('-').partition('=')[0] for text in fixed if text.startswith('-')}
  if 'output_dir' in given:
    raise ValueError("--output_dir belongs before ' -- ': each run has a folder of its own in it.")
  if _FLAGS.ray is not None and 'ray' in given:
    raise ValueError("--ray before ' -- ' spreads runs, after it clients: give one of them.")
  known = {flag.name for flag in flags.table()}
  for name in _FLAGS:
    if name not in known and {name, f'no{name}'} & given:
      raise ValueError(f"--{name} belongs before ' -- ': it is the sweep's.")
  repeated = {flag.name for flag in flags.table() if flag.kind is list}  # They add up.
  for name in varied:
    if name not in repeated and {name, f'no{name}'} & given:
      raise ValueError(f"--{name} is varied and after ' -- ': give it in one place only.")


def _check_flags(axes: grid.Axes, ranges: Iterable[str]) -> None:
  """ValueError if the sweep's own flags do not go together."""
  if _FLAGS.search not in _SEARCHES:
    raise ValueError(f'--search must be grid, random or tpe, found {_FLAGS.search!r}.')
  if _FLAGS.prune not in (None, 'asha'):
    raise ValueError(f'--prune must be asha, found {_FLAGS.prune!r}; leave it out for none.')
  trial_pool.check(_FLAGS.ray, _FLAGS.cpus_per_job, _FLAGS.gpus_per_job)
  least_values = {'trials': 1, 'jobs': 1, 'cpus_per_job': 1, 'first_rung': 1, 'reduction_factor': 2}
  for name, least in least_values.items():
    if _FLAGS[name].value is not None and _FLAGS[name].value < least:
      raise ValueError(f'--{name} must be {least} or more, found {_FLAGS[name].value}.')
  if _FLAGS.search_seed < 0:
    raise ValueError(f'--search_seed must be 0 or more, found {_FLAGS.search_seed}.')
  if _FLAGS.metric and not _FLAGS.metric.startswith(('validation_', 'inference_', 'train_')):
    raise ValueError(
      f'--metric={_FLAGS.metric}: trials are selected on validation data, never on test data: give'
      ' a column of metrics.csv such as validation_accuracy.'
    )
  if _FLAGS.search == 'grid':
    if not axes:
      raise ValueError('give --grid at least once.')
    if list(ranges):
      raise ValueError(
        '--range is for --search=random and tpe; give values: --grid=FLAG=VALUE,....'
      )
    if _FLAGS.trials is not None:
      raise ValueError('--trials is for --search=random and tpe: a grid has one for each point.')
    if _FLAGS['search_seed'].present:
      raise ValueError('--search_seed is for --search=random and tpe: a grid draws nothing.')
  elif not {*axes, *ranges} - {'seed'} or _FLAGS.trials is None:
    raise ValueError(
      f'--search={_FLAGS.search} needs --trials=NUMBER and a --range or --grid to draw from.'
    )
  for name in ('first_rung', 'reduction_factor'):
    if not _FLAGS.prune and _FLAGS[name].present:
      raise ValueError(f'--{name} is for --prune=asha: leave it out, or give both.')
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


def _check_runs(space: search_space.Space) -> Settings:
  """Returns the settings of a run; ValueError if some cannot be run."""
  if _FLAGS.search != 'grid':
    space.check()
    return space.example()
  found = [run for point in space.points() for run in space.runs(point, _folder(0, point))]
  grid.check_different(found)
  return found[0]


def _first_rung(run: Settings) -> int:
  """Returns --first_rung, or its default; ValueError if there is no evaluation then."""
  every = run.rounds_per_evaluation
  rung = _FLAGS.first_rung or -(-run.rounds // 9 // every) * every
  if rung % every or rung >= run.rounds:
    raise ValueError(
      f'--first_rung={rung} must be a multiple of --rounds_per_evaluation={every}, and less than'
      f' --rounds={run.rounds}: trials are compared by their evaluations.'
    )
  return int(rung)


def _folder(number: int, point: grid.Point) -> str:
  name = grid.label(point) if _FLAGS.search == 'grid' else f'trial={number}'
  return os.path.join(_FLAGS.output_dir, name)


def _show_runs(space: search_space.Space) -> None:
  """Says which commands would be run; of tpe the first, which nothing decides yet."""
  from .cli import study

  number = None if _FLAGS.search == 'grid' else _FLAGS.trials
  points = space.points() if number is None else study.preview(space, _plan(None), number)
  runs = [run for i, point in enumerate(points) for run in space.runs(point, _folder(i, point))]
  lines = [' '.join(['train.py', *flags.command_line(run.given)]) for run in runs]
  command.show(''.join(line + '\n' for line in lines))


def _plan(first_rung: int | None) -> Any:
  from .cli import study

  return study.Plan(
    _FLAGS.search,
    _FLAGS.trials,
    _FLAGS.search_seed,
    first_rung,
    _FLAGS.reduction_factor,
    _FLAGS.metric,
  )


def _search(space: search_space.Space, first_rung: int | None) -> int:
  """Does the trials and shows the table."""
  from .cli import search, study, trial_table, worker_pool

  plan = _plan(first_rung)
  trials = study.Study(_FLAGS.output_dir, space, plan, functools.partial(_is_there, space))
  live = trial_table.Live()
  journal = os.path.join(_FLAGS.output_dir, study.JOURNAL)
  where = (_FLAGS.ray, _FLAGS.jobs, _FLAGS.cpus_per_job, _FLAGS.gpus_per_job, journal)

  def prepare(claim: study.Claim) -> tuple[list[Settings], list[int]]:
    runs = space.runs(claim.point, _folder(claim.number, claim.point))
    return runs, plan.rungs(runs[0].rounds)

  with live, trial_pool.build(*where, live.say) as pool:
    todo = search.Search(trials, prepare, _FLAGS.output_dir, live.say)
    with worker_pool.stopping(pool.send) as heard:
      while True:
        while pool.has_room and not heard and (following := todo.next()) is not None:
          (active, run), job, key = following
          until = '' if job.last_round is None else f' to round {job.last_round}'
          live.say(f'[{active.claim.number + 1}/{trials.total()}] {run.output_dir}{until}')
          pool.begin((active, run), job, key)
        if not pool.tickets:
          break
        for ticket, answer in pool.wait(1.0):
          todo.done(ticket, search.stopped(answer) if heard else answer, is_ending=bool(heard))
        if live.is_shown:
          live.show(
            _rows(trials.views(), space.seeds),
            trials.metric,
            f'{len(pool.tickets)} at work; Ctrl-C saves and ends',
          )
  if heard:
    command.say(_STOPPED)
    return 128 + heard[0]
  return _conclude(trials.views(), space.seeds, trials.metric)


def _is_there(space: search_space.Space, number: int, point: grid.Point) -> bool:
  """Whether the runs of a trial are complete in their folders, which somebody may have deleted.

  Raises:
    ValueError: If one is, but its rows are damaged.
  """
  from .cli import search

  runs = space.runs(point, _folder(number, point))
  if not all(run_folder.is_complete(run.output_dir, run.rounds) for run in runs):
    return False
  for run in runs:
    search.read_whole(run.output_dir, run.rounds)  # Or else the table would be of the others.
  return True


def _runs(view: Any, seeds: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
  """The folders of a trial's runs, and what each varies."""
  point, folder = dict(view.point), _folder(view.number, view.point)
  if not seeds:
    return [(folder, point)]
  return [(f'{folder},seed={seed}', {**point, 'seed': seed}) for seed in seeds]


def _rows(views: Iterable[Any], seeds: Sequence[str]) -> list[Any]:
  """The trials as rows of the table: those that differ in their seed only are one."""
  from .cli import trial_table

  groups: dict[str, list[Any]] = {}
  for view in views:
    groups.setdefault(_label(view, str), []).append(view)
  labels = [_label(members[0], _short) for members in groups.values()]
  if len(set(labels)) < len(groups):  # Values that differ after the fourth digit.
    labels = [*groups]
  return [
    trial_table.Row(
      label,
      [folder for view in members for folder, _ in _runs(view, seeds)],
      [view.state for view in members],
      [view.reason for view in members if view.reason],
    )
    for label, members in zip(labels, groups.values())
  ]


def _label(view: Any, shown: Callable[[str], str]) -> str:
  point = {name: value for name, value in view.point.items() if name != 'seed'}
  label = ', '.join(f'{name}={shown(value)}' for name, value in point.items()) or 'seeds'
  return label if _FLAGS.search == 'grid' else f'trial {view.number}: {label}'


def _short(value: str) -> str:
  """Numbers that were drawn in four digits; the run's config.json has all of them."""
  try:
    return f'{float(value):.4g}' if len(value) > 10 else value
  except ValueError:
    return value


def _conclude(views: Sequence[Any], seeds: Sequence[str], metric: str | None) -> int:
  """Writes the table and what TensorBoard shows; returns the exit code."""
  from .cli import hparams, trial_table

  rows = _rows(views, seeds)
  path = os.path.join(_FLAGS.output_dir, 'sweep.md')
  best, metric = trial_table.write(path, rows, metric, _FLAGS.target)
  if metric is not None:
    runs = [(*run, view.state) for view in views for run in _runs(view, seeds)]
    hparams.write(_FLAGS.output_dir, metric, runs)
  if best is not None:
    folders = next(row.folders for row in rows if row.label == best)
    command.show(f'Best: {best}, in {folders[0]}\n')
  return command.FAILED if any(view.state == 'failed' for view in views) else command.DONE


if __name__ == '__main__':
  sys.exit(main())
