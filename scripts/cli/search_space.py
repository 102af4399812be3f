"""The space of a sweep: values to choose from, ranges to draw from, and seeds."""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_adaptive import registry
from tff_adaptive._utils import suggestions

from . import flags, hyperparameters, records, resolve
from .groups import what
from .settings import Settings

if TYPE_CHECKING:
  import optuna

# These flags decide which other flags have a meaning.
_FIRST = ('task', 'algorithm', 'server_optimizer')
Point = Mapping[str, str]  # The values of flags, as text, by name.


class Range(NamedTuple):
  """Numbers from `low` to `high`, drawn on a log scale if `is_log`, and integers if `is_whole`."""

  low: float
  high: float
  is_log: bool
  is_whole: bool

  def text(self, value: float) -> str:
    """Formats a number of the range as the value of a flag; floats have six significant digits."""
    return str(value) if self.is_whole else f'{value:.6g}'


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
    found = self._combinations(self.axes)
    if len({label(point) for point in found}) < len(found):
      raise ValueError(
        f'--grid: two runs would have the same folder: its name has _ for {os.sep}, and only the'
        ' NAME of FILE.py:NAME. Rename one of them.'
      )
    return found

  def draw(self, trial: 'optuna.Trial') -> Point:
    """Returns the values of a trial, drawn with the sampler of the trial's study."""
    point: dict[str, str] = {}
    for name in sorted(self.axes, key=lambda name: (*_FIRST, name).index(name)):
      axis = self.axes[name]
      if not self._is_free(name, point):
        continue
      if isinstance(axis, Range):
        suggest: Any = trial.suggest_int if axis.is_whole else trial.suggest_float
        point[name] = axis.text(suggest(name, *axis[:2], log=axis.is_log))
      else:
        point[name] = str(trial.suggest_categorical(name, list(axis)))
    return point

  def check(self) -> Settings:
    """Raises ValueError if a value or bound is invalid. Returns the settings of one of the runs."""
    kinds = self._kinds()
    found = [self.settings(kind) for kind in kinds]
    for name, axis in {**self.axes, 'seed': self.seeds}.items():
      if name not in _FIRST:
        kind = next((kind for kind in kinds if self._is_free(name, kind)), kinds[0])
        ends = (axis.text(axis.low), axis.text(axis.high)) if isinstance(axis, Range) else axis
        for value in ends:
          self.settings({**kind, name: value})
    return found[0]

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
    return [r for p in self.points() for r in self.runs(os.path.join(output_dir, label(p)), p)]

  def settings(self, point: Point, folder: str | None = None) -> Settings:
    """Returns the settings of a run.

    Args:
      point: The values that the run varies.
      folder: The folder of the run; None if it has none yet.

    Raises:
      ValueError: If the settings are invalid, or the folder holds another run.
    """
    kinds = self._kinds()
    merged = {
      name: value
      for name, value in self.given.items()
      if self._counts(name, point) or not any(self._counts(name, kind) for kind in kinds)
    }
    own = flags.parse(['', *(f'--{name}={value}' for name, value in point.items())]) or {}
    for name, value in own.items():
      merged[name] = [*merged.get(name, []), *value] if isinstance(value, list) else value
    run = resolve.resolve(merged, output_dir=folder or label(point))
    if folder is not None:
      records.check_folder(folder, records.of(run))
    return run

  def _kinds(self) -> list[Point]:
    """Returns the combinations of the varied tasks, algorithms and server optimizers."""
    return self._combinations({name: self.axes[name] for name in _FIRST if name in self.axes})

  def _combinations(self, axes: Mapping[str, Any]) -> list[Point]:
    full = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    used = {name for point in full for name in point if self._counts(name, point)}
    kept = [{n: v for n, v in p.items() if n not in used or self._counts(n, p)} for p in full]
    return list({tuple(point.items()): point for point in kept}.values())

  def _is_free(self, name: str, point: Point) -> bool:
    """Returns whether a flag has a meaning with each of its values and the values drawn so far."""
    axis = self.axes.get(name, ())
    values = ('',) if isinstance(axis, Range) else axis
    return all(self._counts(name, {**point, name: value}) for value in values)

  def _counts(self, name: str, point: Point) -> bool:
    """Returns whether a flag has a meaning for a run's algorithm and server optimizer."""
    asked = {**self.given, **point}
    algorithm = registry.algorithm(asked.get('algorithm') or what.ALGORITHM)
    fixed, server = algorithm.server_optimizer, asked.get('server_optimizer') or ''
    takes = fixed is None or (server not in ('', fixed) and registry.takes(algorithm, server))
    if name == 'server_optimizer':
      return takes
    named, chosen = hyperparameters.named().get(name), server if takes and server else fixed
    return named is None or named.belongs_to(algorithm, registry.server_optimizer(chosen or 'sgd'))


def label(point: Point) -> str:
  """Returns the name of the folder of a run that has the varied values of `point`."""
  shown = dict(point)
  if 'algorithm' in shown:
    shown['algorithm'] = what.folder_name(shown['algorithm'])
  text = ','.join(f'{name}={value}' for name, value in shown.items())
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
  found: dict[str, Sequence[str] | Range] = {}
  for option, text in (*(('grid', t) for t in grids), *(('range', t) for t in ranges)):
    name, _, values = text.partition('=')
    parts = values.split(',')
    if name not in kinds:
      close = ' or '.join(suggestions.nearest(name, kinds))
      hint = f'did you mean {close}?' if close else 'see train.py --help.'
      raise ValueError(f'--{option}={name}: train.py has no such flag; {hint}')
    if name == 'output_dir':
      raise ValueError(f'--{option}=output_dir: the sweep names the folders itself.')
    if name in found:
      raise ValueError(f'--{option}={name}: give each flag once, in --grid or in --range.')
    if option == 'range' and name == 'seed':
      raise ValueError('--range=seed: give seeds one by one, --grid=seed=0,1,2.')
    if option == 'range':
      found[name] = _range(text, parts, kinds[name])
    elif not all(parts) or len({*parts}) < len(parts):
      raise ValueError(f'--grid={text}: write it as FLAG=VALUE,VALUE, and give each value once.')
    else:
      found[name] = parts
  return found


def _range(text: str, parts: Sequence[str], kind: type) -> Range:
  with contextlib.suppress(ValueError, KeyError):
    low, high = map({int: int, float: float}[kind], parts[:2])
    found = Range(low, high, len(parts) > 2, kind is int)
    least = 0 if found.is_log else -math.inf
    if parts[2:] in ([], ['log']) and least < low < high < math.inf:
      return found
  raise ValueError(
    f'--range={text}: write it as FLAG=LOW,HIGH or FLAG=LOW,HIGH,log with a numeric flag of'
    ' train.py. LOW must be less than HIGH, above 0 with log, and whole if the flag is.'
  )
