"""The space of a sweep: values to choose from, ranges to draw from, and seeds."""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_adaptive import registry

from . import flag_names, flags, hyperparameters, option_axes, records, resolve
from .groups import what
from .settings import Settings

if TYPE_CHECKING:
  import optuna

# These flags decide which other flags, or options, have a meaning.
_FIRST = tuple(
  dict.fromkeys(['task', 'algorithm', 'server_optimizer', *option_axes.BASES.values()])
)
# What a flag that is not given names, where that has options.
_DEFAULTS = {'algorithm': what.ALGORITHM, 'attack': 'sign_flip', 'staleness': 'polynomial'}
# Flags of train.py that have no meaning for the runs of a sweep, and what they do.
_OF_ONE_RUN = {'config': 'repeats one run', 'check_ray': 'trains nothing'}
Point = Mapping[str, str]  # The values of flags, as text, by name.


class Range(NamedTuple):
  """Numbers from `low` to `high`, drawn on a log scale if `is_log`, and integers if `is_whole`."""

  low: float
  high: float
  is_log: bool
  is_whole: bool

  def text(self, value: float) -> str:
    """Formats a number of the range as the value of a flag; floats have six significant digits."""
    if self.is_whole:
      return str(value)
    return f'{value:.6g}'


@dataclasses.dataclass(frozen=True)
class Space:
  """The flags that the runs of a sweep vary, and their values.

  A run has only the hyperparameters of its algorithm and server optimizer. `settings` raises
  ValueError for a hyperparameter that no run has.

  Attributes:
    axes: By flag, the values to choose from, as texts, or a range of numbers to draw from.
    given: The values that all runs share, by flag. A repeatable flag gets its varied values too.
    seeds: A trial has a run for each of these seeds, and their mean as its score. If empty, it has
      one run, with the seed in `given`.
  """

  axes: Mapping[str, Sequence[str] | Range]
  given: Mapping[str, Any]
  seeds: Sequence[str] = ()

  def points(self) -> list[Point]:
    """Returns each combination of values once; the last flag varies fastest.

    Raises ValueError if two combinations have folders of the same name.
    """
    points = self._combinations(self.axes)
    names = {label(point) for point in points}
    if len(names) < len(points):
      raise ValueError(
        f'--grid: two runs would have the same folder: its name has _ for {os.sep}, and only the'
        ' NAME of FILE.py:NAME. Rename one of them.'
      )
    return points

  def draw(self, trial: 'optuna.Trial') -> Point:
    """Returns the values of a trial, drawn with the sampler of the trial's study."""
    point: dict[str, str] = {}
    for name in self._in_order():
      axis = self.axes[name]
      if not self._is_free(name, point):
        continue
      if not isinstance(axis, Range):
        point[name] = str(trial.suggest_categorical(name, list(axis)))
      elif axis.is_whole:
        number = trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.is_log)
        point[name] = axis.text(number)
      else:
        number = trial.suggest_float(name, axis.low, axis.high, log=axis.is_log)
        point[name] = axis.text(number)
    return point

  def check(self) -> Settings:
    """Raises ValueError if a value or bound is invalid. Returns the settings of one of the runs."""
    # Flags are checked one by one beside the first values of the others: all combinations are too
    # many.
    firsts = [self._first_point(kind) for kind in self._kinds()]
    runs = [self.settings(point) for point in firsts]
    for name, axis in {**self.axes, 'seed': self.seeds}.items():
      if name in _FIRST:
        continue
      # A flag that no run can have is tried with the first, and refused.
      base = next((point for point in firsts if self._is_free(name, point)), firsts[0])
      for value in _ends(axis):
        self.settings({**base, name: value})
    return runs[0]

  def folders(self, folder: str, point: Point) -> list[tuple[str, Point]]:
    """Returns for each run of a trial its folder and the values that it varies.

    Args:
      folder: The trial's folder. With seeds, ',seed=SEED' is added.
      point: The values of the trial.
    """
    if not self.seeds:
      return [(folder, point)]
    return [(f'{folder},seed={seed}', {**point, 'seed': seed}) for seed in self.seeds]

  def runs(self, folder: str, point: Point) -> list[Settings]:
    """Returns the settings of a trial's runs (see `folders`). Raises ValueError like `settings`."""
    return [self.settings(varied, where) for where, varied in self.folders(folder, point)]

  def grid(self, output_dir: str) -> list[Settings]:
    """Returns the settings of the runs of all combinations, each with a folder in `output_dir`."""
    runs: list[Settings] = []
    for point in self.points():
      runs += self.runs(os.path.join(output_dir, label(point)), point)
    return runs

  def settings(self, point: Point, folder: str | None = None) -> Settings:
    """Returns the settings of a run.

    Args:
      point: The values that the run varies.
      folder: The folder of the run; None if it has none yet.

    Raises:
      ValueError: If the settings are invalid, or the folder holds another run.
    """
    merged = self._shared(point)
    varied = flags.parse(['', *(f'--{name}={value}' for name, value in point.items())]) or {}
    for name, value in varied.items():
      if isinstance(value, list):  # Values of a flag that may be repeated add up.
        merged[name] = [*merged.get(name, []), *value]
      else:
        merged[name] = value
    run = resolve.resolve(merged, output_dir=folder or label(point))
    if folder is not None:
      records.check_folder(folder, records.of(run))
    return run

  def _shared(self, point: Point) -> dict[str, Any]:
    """Returns what all runs share, without what has no meaning for this run but has for others."""
    kinds = self._kinds()
    shared: dict[str, Any] = {}
    for name, value in self.given.items():
      if name in option_axes.BASES:  # Each option by itself: the run may have some of them.
        options = [pair for pair in value if self._is_shared(name, pair, point, kinds)]
        if options:
          shared[name] = options
        continue
      is_of_another = any(self._counts(name, kind) for kind in kinds)
      if self._counts(name, point) or not is_of_another:
        shared[name] = value
    return shared

  def _is_shared(self, name: str, pair: str, point: Point, kinds: Sequence[Point]) -> bool:
    """Returns whether a run has a shared option; true too if none has, so that it is refused."""
    if self._counts(name, {**point, name: pair}):
      return True
    return not any(self._counts(name, {**kind, name: pair}) for kind in kinds)

  def _in_order(self) -> list[str]:
    """Returns the names of the axes, with those first that decide which others have a meaning."""
    return [
      *(name for name in _FIRST if name in self.axes),
      *(name for name in self.axes if name not in _FIRST),
    ]

  def _kinds(self) -> list[Point]:
    """Returns the combinations of the varied tasks, algorithms and server optimizers."""
    return self._combinations({name: self.axes[name] for name in _FIRST if name in self.axes})

  def _first_point(self, kind: Point) -> Point:
    """Returns the first value of each axis that has a meaning for one of `_kinds`."""
    point = dict(kind)
    for name, axis in self.axes.items():
      if name not in _FIRST and self._is_free(name, kind):
        point[name] = _ends(axis)[0]
    return point

  # A value without a meaning would make two runs with the same results: FedAvg with each tau.
  def _combinations(self, axes: Mapping[str, Any]) -> list[Point]:
    """Returns each combination once, without the values that have no meaning in it.

    A value that has no meaning in any combination stays, so that `settings` refuses it.
    """
    whole = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    meaningful: set[str] = set()
    for point in whole:
      meaningful.update(name for name in point if self._counts(name, point))
    combinations: list[Point] = []
    for point in whole:
      reduced = {
        name: value
        for name, value in point.items()
        if name not in meaningful or self._counts(name, point)
      }
      # An option of another rule, say, stands for a run only where no value has a meaning.
      is_of_others = any(
        name not in reduced and self._takes_another_value(name, point) for name in point
      )
      if reduced not in combinations and not is_of_others:
        combinations.append(reduced)
    return combinations

  def _takes_another_value(self, name: str, point: Point) -> bool:
    """Returns whether an option, which has no meaning in a point, has one with another value."""
    axis = self.axes.get(name, ())
    if name not in option_axes.BASES or isinstance(axis, Range):
      return False
    return any(self._counts(name, {**point, name: value}) for value in axis)

  def _is_free(self, name: str, point: Point) -> bool:
    """Returns whether a flag has a meaning with each of its values and the values drawn so far."""
    axis = self.axes.get(name, ())
    if isinstance(axis, Range):  # Which number it is makes no difference.
      return self._counts(name, {**point, name: ''})
    return all(self._counts(name, {**point, name: value}) for value in axis)

  def _counts(self, name: str, point: Point) -> bool:
    """Returns whether a flag has a meaning for a run's algorithm and server optimizer."""
    flags_of_run = {**self.given, **point}
    if name in option_axes.BASES:
      return self._counts_as_option(name, flags_of_run)
    algorithm = registry.algorithm(flags_of_run.get('algorithm') or what.ALGORITHM)
    fixed = algorithm.server_optimizer
    server = flags_of_run.get('server_optimizer') or ''
    # Naming the optimizer that the algorithm's name stands for makes no difference.
    is_chosen = fixed is None or server not in ('', fixed)
    takes_server = is_chosen and registry.takes(algorithm, server)
    if name == 'server_optimizer':
      return takes_server
    hyperparameter = hyperparameters.named().get(name)
    if hyperparameter is None:
      return True
    if not server or not takes_server:
      server = fixed or 'sgd'
    return hyperparameter.belongs_to(algorithm, registry.server_optimizer(server))

  def _counts_as_option(self, name: str, flags_of_run: Mapping[str, Any]) -> bool:
    """Returns whether all values of a flag of options have a meaning with the other flags."""
    base = flags_of_run.get(option_axes.BASES[name]) or _DEFAULTS.get(option_axes.BASES[name])
    given = flags_of_run.get(name)
    pairs = given if isinstance(given, list) else [given]
    return all(option_axes.has_option(name, base, str(pair)) for pair in pairs)


def label(point: Point) -> str:
  """Returns the name of the folder of a run that has the varied values of `point`."""
  values = dict(point)
  if 'algorithm' in values:
    values['algorithm'] = what.folder_name(values['algorithm'])
  text = ','.join(f'{name}={value}' for name, value in values.items())
  return text.replace(os.sep, '_') or 'run'


def read(grids: Sequence[str], ranges: Sequence[str]) -> dict[str, Sequence[str] | Range]:
  """Parses --grid and --range into the axes of a `Space`.

  Args:
    grids: Texts FLAG=VALUE,VALUE.
    ranges: Texts FLAG=LOW,HIGH or FLAG=LOW,HIGH,log.

  Raises:
    ValueError: If a text has another form, or its flag is unknown or occurs twice.
  """
  kinds = {flag.name: flag.kind for flag in flags.table()}
  axes: dict[str, Sequence[str] | Range] = {}
  for text in grids:
    name, values = _parsed('grid', text, kinds, axes)
    if not all(values) or len(set(values)) < len(values):
      raise ValueError(f'--grid={text}: write it as FLAG=VALUE,VALUE, and give each value once.')
    axes[name] = values
  for text in ranges:
    name, values = _parsed('range', text, kinds, axes)
    if name == 'seed':
      raise ValueError('--range=seed: give seeds one by one, --grid=seed=0,1,2.')
    axes[name] = _range(text, values, kinds[name])
  return axes


def _parsed(
  option: str, text: str, kinds: Mapping[str, type], axes: Mapping[str, Any]
) -> tuple[str, list[str]]:
  """Returns the flag and the values of FLAG=VALUE,VALUE. Raises ValueError for a wrong flag."""
  name, _, values = text.partition('=')
  if name not in kinds:
    hint = flag_names.hint(name, kinds) or 'see train.py --help.'
    raise ValueError(f'--{option}={name}: train.py has no such flag; {hint}')
  if name == 'output_dir':
    raise ValueError(f'--{option}=output_dir: the sweep names the folders itself.')
  check_flags_of_runs([name])
  if name in axes:
    raise ValueError(f'--{option}={name}: give each flag once, in --grid or in --range.')
  return name, _values(name, values)


def _values(name: str, text: str) -> list[str]:
  """Returns the values between commas; what has no NAME= goes on with an option's value."""
  values: list[str] = []
  for part in text.split(','):
    # Values of a task's options are checked only when a run loads it.
    if values and part and '=' not in part and name in option_axes.BASES:
      values[-1] += f',{part}'
    else:
      values.append(part)
  return values


def check_flags_of_runs(names: Iterable[str]) -> None:
  """Raises ValueError for a flag of train.py that has no meaning for the runs of a sweep."""
  for name in names:
    if name in _OF_ONE_RUN:
      raise ValueError(f'--{name} is for train.py alone: it {_OF_ONE_RUN[name]}.')


def _range(text: str, parts: Sequence[str], kind: type) -> Range:
  """Parses LOW,HIGH or LOW,HIGH,log of --range=`text`, for a flag of type `kind`."""
  numbers: list[float] = []
  if kind in (int, float):
    with contextlib.suppress(ValueError):
      numbers = [kind(part) for part in parts[:2]]
  if len(numbers) == 2 and parts[2:] in ([], ['log']):
    low, high = numbers
    is_log = parts[2:] == ['log']
    is_possible = low > 0 or not is_log
    if is_possible and -math.inf < low < high < math.inf:
      return Range(low, high, is_log, kind is int)
  raise ValueError(
    f'--range={text}: write it as FLAG=LOW,HIGH or FLAG=LOW,HIGH,log with a numeric flag of'
    ' train.py. LOW must be less than HIGH, above 0 with log, and whole if the flag is.'
  )


def _ends(axis: Sequence[str] | Range) -> Sequence[str]:
  """Returns the values of an axis to check: all values, or the bounds of a range."""
  if isinstance(axis, Range):
    return (axis.text(axis.low), axis.text(axis.high))
  return axis
