"""Trains a run of the bench in this process, without a folder, and returns its row."""

import datetime
import functools
import math
import os
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tff_adaptive
from tff_adaptive._utils import error_text, user_code
from tff_adaptive.runs import revision
from tff_adaptive.training import callbacks

from ..cli import flags as run_flags, options, resolve, settings as settings_lib, tensorflow_start
from . import methods, problems, rows

_FLOOR = 1e-6  # Of the relative distance to the optimum: float32 gets no nearer.
_DISTANCE = 'log10_distance'
_WORSE = 100.0  # A loss this many times that of the initial model has diverged.


_PACKAGE = os.path.dirname(tff_adaptive.__file__) + os.sep


class _Recorder(callbacks.Callback):
  """A callback that keeps the rows of a run in memory."""

  may_load_ahead = True

  def __init__(self) -> None:
    self.rows: list[Mapping[str, Any]] = []

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Keeps a row."""
    self.rows.append(dict(row))


def settings_of(
  key: rows.Key, method: methods.Method, point: Mapping[str, float], data_dir: str | None
) -> settings_lib.Settings:
  """Returns the settings of a run. Raises ValueError if the method does not take them."""
  problem = problems.PROBLEMS[key.problem]
  more = problem.tuning
  seed = methods.TUNING_SEED
  if key.stage == rows.FINAL:
    more = problem.test
    seed = key.number
  given = run_flags.parse(['', *problem.flags, *more]) or {}
  given.update(algorithm=method.reference, seed=seed, quiet=True)
  if problem.files:
    given['data_dir'] = data_dir
  for name, value in {**method.flags, **_as_flags(method, point)}.items():
    if isinstance(value, list):  # Options add up.
      value = [*given.get(name, []), *value]
    given[name] = value
  return resolve.resolve(given)


def _as_flags(method: methods.Method, point: Mapping[str, float]) -> dict[str, Any]:
  """Returns a point as flags. Names that are options of the method go to algorithm_option."""
  given: dict[str, Any] = {}
  names = [h.name for h in method.entry.hyperparameters]
  for name, value in point.items():
    if method.entry.takes_options and name in names:
      given.setdefault('algorithm_option', []).extend(options.pairs({name: value}))
    else:
      given[name] = value
  return given


def train(
  key: rows.Key, method: methods.Method, point: Mapping[str, float], data_dir: str | None
) -> rows.Row:
  """Trains a run and returns its row.

  Raises ValueError if the method does not take its settings, the data cannot be loaded, or a user's
  file fails. Methods that do not suit a problem's model, and runs that diverge, are rows too.
  """
  tensorflow_start.load()
  import tensorflow as tf

  from tff_adaptive import runs

  row = functools.partial(
    rows.Row,
    *key,
    rows.in_words(dict(point)),
    code=method.digest(),
    revision=_revision(),
    day=datetime.date.today().isoformat(),
  )
  settings = settings_of(key, method, point, data_dir)
  settings.runtime.build(settings.most_clients)
  task = _load(
    settings.what.task,
    settings.output.data_dir,
    settings.what.seed,
    tuple(settings.what.task_options.items()),
  )
  began = time.perf_counter()
  try:
    evaluations = _train(settings, task, key)
  except runs.NonFiniteWeightsError as error:
    seconds = time.perf_counter() - began
    return row(rows.DIVERGED, seconds=seconds, reason=error_text.in_brief(error))
  except Exception as error:
    place = user_code.place(error)
    is_refusal = isinstance(error, ValueError) and _is_raised_here(error)
    if place is not None and user_code.is_reference(method.reference) and not is_refusal:
      raise ValueError(
        f'{place.path}, line {place.line}, failed on the problem {key.problem}:'
        f' {user_code.in_words(error)} (the runs before are kept: --report_only shows them, and'
        ' --problems= leaves out a problem that the method does not suit)'
      ) from error
    if not isinstance(error, (ValueError, TypeError, tf.errors.InvalidArgumentError)):
      raise
    return row(rows.REFUSED, reason=error_text.in_brief(error))
  seconds = time.perf_counter() - began
  curve = [float(value) for value in evaluations.pop('curve')]
  text = ' '.join(f'{value:.6g}' for value in curve)
  reason = evaluations.pop('reason')
  if reason:
    return row(rows.DIVERGED, curve=text, seconds=seconds, reason=reason, **evaluations)
  return row(
    rows.DONE,
    float(np.mean(curve[-problems.AVERAGED :])),
    float(np.mean(curve[1:])),
    text,
    seconds=seconds,
    **evaluations,
  )


def _is_raised_here(error: BaseException) -> bool:
  """Returns whether tff_adaptive itself raised an error, if also for a user's part that called it.

  Such a part asks for what a problem has not, as MOON for features of least squares.
  """
  frames = traceback.extract_tb(error.__traceback__)
  return bool(frames) and frames[-1].filename.startswith(_PACKAGE)


def _revision() -> str:
  """Returns ten digits of the program's revision, with '+' if files differ from it."""
  whole = revision.git_revision() or ''
  if whole.endswith('+'):
    return f'{whole[:10]}+'
  return whole[:10]


def _train(settings: settings_lib.Settings, task: Any, key: rows.Key) -> dict[str, Any]:
  """Trains a run. Returns its curve, what it cost, and why it diverged, or ''."""
  from tff_adaptive import training

  from ..cli import build

  problem = problems.PROBLEMS[key.problem]
  arguments = build.in_memory(settings, task)
  if problem.metric == _DISTANCE:
    arguments['evaluate_fn'] = _with_distance(arguments['evaluate_fn'], task)
  record = _Recorder()
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # `train` would give what it shows as warnings.
    result = training.train(**arguments, callbacks=[record], show_progress=False)
  # Costs are those of the cost model, and do not depend on the machine.
  totals = result.summary['totals']
  curve = _curve(record.rows, problem, key.stage)
  return {
    'curve': curve,
    'reason': _divergence(record.rows, curve, result.summary),
    'megabytes': totals['megabytes_down'] + totals['megabytes_up'],
    'gradients': totals['gradients'],
  }


@functools.lru_cache(maxsize=4)
def _load(
  name: str, data_dir: str | None, seed: int, task_options: tuple[tuple[str, Any], ...]
) -> Any:
  """Loads a task; the last ones are kept, because the next run often has the same data."""
  import tff_adaptive_tasks as tasks

  return tasks.load(name, data_dir=data_dir, seed=seed, **dict(task_options))


def _curve(recorded: list[Mapping[str, Any]], problem: problems.Problem, stage: str) -> list[float]:
  """Returns the evaluations of a run, of the model for inference where there is one."""
  columns = [f'inference_{problem.metric}', f'validation_{problem.metric}']
  if problem.tuning_column and stage == rows.SEARCH:
    columns = [problem.tuning_column]
  for column in columns:
    values = [row[column] for row in recorded if column in row]
    if values:
      return values
  # The problem's fault, so no ValueError, which would say that the method has no meaning on it.
  raise RuntimeError(f'the run has no values of {columns[-1]}.')


def _divergence(
  recorded: list[Mapping[str, Any]], curve: list[float], summary: Mapping[str, Any]
) -> str:
  """Returns why a run has diverged; '' if it has not."""
  losses = [row['validation_loss'] for row in recorded if 'validation_loss' in row]
  if not np.isfinite([*curve[-problems.AVERAGED :], losses[-1]]).all():
    return 'the model is not finite'
  if losses[-1] > _WORSE * losses[0]:
    return f'the loss is above {_WORSE:g} times that of the initial model'
  if summary['ends_without_update']:
    return 'no update of the last round was finite'
  return ''


def _with_distance(evaluate: Callable[[Any], Any], task: Any) -> Callable[[Any], Any]:
  """Returns an evaluation that adds log10 of the relative distance to the least squares solution.

  The distance of the initial model is 1, and distances below 1e-6 count as 1e-6.
  """
  examples = task.train.load_all()
  optimum = np.linalg.lstsq(examples['x'].astype(float), examples['y'].astype(float), rcond=None)[0]
  first: list[float] = []

  def with_distance(weights: Any) -> dict[str, Any]:
    # The first call is that of round 0, with the initial model.
    distance = float(np.linalg.norm(np.asarray(weights[0], float) - optimum))
    first.append(distance)
    relative = distance / first[0]
    return {**evaluate(weights), _DISTANCE: math.log10(max(relative, _FLOOR))}

  return with_distance
