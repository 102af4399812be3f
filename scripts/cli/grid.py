"""Every combination of some flags' values: the runs of a grid."""

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import suggestions, user_code

from . import flags, hyperparameters, records, resolve, run_folder, settings
from .settings import Settings

# Of a folder's name: 255 are a file's on most file systems, and NAME.log is one.
_MOST_BYTES = 255 - len('.log')
Axes = Mapping[str, Sequence[str]]
Point = Mapping[str, str]  # Flag -> its value, as text.


def axes(texts: Sequence[str]) -> dict[str, list[str]]:
  """Reads --grid.

  Args:
    texts: FLAG=VALUE,VALUE each.

  Returns:
    Flag -> its values, as texts.

  Raises:
    ValueError: If one is no flag of a run or comes twice.
  """
  found: dict[str, list[str]] = {}
  for text in texts:
    name, equals, values = text.partition('=')
    if not equals or not all(values.split(',')):
      raise ValueError(f'--grid={text}: write it as FLAG=VALUE,VALUE with a flag of train.py.')
    check_varied('grid', name, found)
    found[name] = values.split(',')
    if len({*found[name]}) < len(found[name]):
      raise ValueError(f'--grid={text}: give each value once.')
  return found


def check_varied(option: str, name: str, before: Iterable[str]) -> None:
  """ValueError if there is no such flag, it cannot be varied, or is so already."""
  if name not in flags.names():
    close = suggestions.nearest(name, flags.names())
    hint = f'did you mean {" or ".join(close)}?' if close else 'see train.py --help.'
    raise ValueError(f'--{option}={name}: train.py has no such flag; {hint}')
  if name == 'output_dir':
    raise ValueError(f'--{option}=output_dir: the sweep names the folders itself.')
  if name in before:
    raise ValueError(f'--{option}={name}: each flag once, in --grid or in --range.')


def points(varied: Axes, given: Mapping[str, Any]) -> list[dict[str, str]]:
  """Returns each combination once, the last flag varying fastest, without what has no meaning.

  A hyperparameter counts where the algorithm or the server optimizer has it. One that none of the
  combinations has stays: it is refused like a flag.

  Args:
    varied: Flag -> its values.
    given: What all runs share.
  """
  full = [dict(zip(varied, values)) for values in itertools.product(*varied.values())]
  used = {name for point in full for name in point if counts(name, point, given)}
  found: dict[Any, dict[str, str]] = {}
  for point in full:
    kept = {n: v for n, v in point.items() if n not in used or counts(n, point, given)}
    # FedAvg with sgd, its own, is FedAvg.
    own = {'server_optimizer'} if server_is_fixed(point, given) else set()
    key = tuple((n, v) for n, v in kept.items() if n not in own)
    if key not in found or len(kept) > len(found[key]):
      found[key] = kept
  return list(found.values())


def counts(name: str, point: Point, given: Mapping[str, Any]) -> bool:
  """Whether a flag has a meaning for the algorithm and the server optimizer of a run.

  Args:
    name: The flag.
    point: What the run varies.
    given: What all runs share.

  Raises:
    ValueError: If there is no such algorithm or server optimizer.
  """
  asked = {**given, **point}
  algorithm = registry.algorithm(asked.get('algorithm') or _default('algorithm'))
  fixed, server = algorithm.server_optimizer, asked.get('server_optimizer')
  if name == 'server_optimizer':
    return server == fixed or not server_is_fixed(point, given)
  if name in ('client_state_store', 'client_state_dir'):
    return algorithm.is_stateful
  named = hyperparameters.named().get(name)
  if named is None:
    return True
  if named.group == hyperparameters.CORRECTION:
    return algorithm.name in named.owners
  takes = counts('server_optimizer', point, given)
  chosen = server if takes and server else fixed or 'sgd'
  return registry.server_optimizer(chosen).name in named.owners


def server_is_fixed(point: Point, given: Mapping[str, Any]) -> bool:
  """Whether the algorithm of a run takes no other server optimizer; see `counts`."""
  asked = {**given, **point}
  fixed = registry.algorithm(asked.get('algorithm') or _default('algorithm')).server_optimizer
  own = user_code.is_reference(asked.get('server_optimizer') or '')
  return fixed is not None and not (fixed == 'sgd' and own)


def jobs(output_dir: str, varied: Axes, given: Mapping[str, Any]) -> list[Settings]:
  """Returns the settings of each run, the last flag varying fastest.

  Args:
    output_dir: The folder in which each run has its own.
    varied: Flag -> its values, as texts.
    given: Flag name -> value of what all runs share; flags that may be repeated add up.

  Raises:
    ValueError: If a run's settings are bad, its folder holds another run, or two are the same.
  """
  everywhere = points(varied, given)
  found = [
    settings_of(point, os.path.join(output_dir, label(point)), given, everywhere)
    for point in everywhere
  ]
  check_different(found)
  return found


def label(point: Point) -> str:
  """Returns the name of a run's folder."""
  text = ','.join(f'{name}={value}' for name, value in point.items())
  return text.replace(os.sep, '_') or 'run'


def settings_of(
  point: Point,
  folder: str,
  given: Mapping[str, Any],
  others: Sequence[Point] = (),
  is_new: bool = False,
) -> Settings:
  """Returns the settings of a run, and checks that its folder can be used.

  Args:
    point: What it varies.
    folder: Its folder.
    given: What all runs share; a hyperparameter that this run lacks is left out if others have it.
    others: The points of the other runs.
    is_new: The folder is not looked at.

  Raises:
    ValueError: If they are bad, or the folder holds another run.
  """
  own = flags.parse(['', *(f'--{name}={value}' for name, value in point.items())]) or {}
  merged = {
    name: value
    for name, value in given.items()
    if counts(name, point, given) or not any(counts(name, other, given) for other in others)
  }
  for name, value in own.items():
    merged[name] = [*merged.get(name, []), *value] if isinstance(value, list) else value
  run = resolve.resolve(merged, output_dir=folder)
  if not is_new:
    run_folder.check_writable(folder)
    run_folder.read_config(folder, records.of(run))
  return run


def check_different(found: Sequence[Settings]) -> None:
  """ValueError if two runs are the same, as of seed=0,00, or their folders, or one has no name."""
  seen: dict[str, str] = {}
  for run in found:
    key = json.dumps({**run.flat(), 'output_dir': None}, sort_keys=True)
    if key in seen:
      raise ValueError(
        f'--grid: {seen[key]} and {run.output.output_dir} are the same run; give each value once.'
      )
    if run.output.output_dir in seen.values():
      raise ValueError(
        f'--grid: two runs would share the folder {run.output.output_dir}, in whose name {os.sep}'
        ' is _: rename one of the files, or name its folder otherwise.'
      )
    name = os.path.basename(run.output.output_dir)
    if len(os.fsencode(name)) > _MOST_BYTES:
      raise ValueError(
        f'--grid: a run has the folder {name[:40]}... of {len(os.fsencode(name))} bytes, at most'
        f' {_MOST_BYTES} are allowed: vary fewer flags, or give shorter values or paths.'
      )
    seen[key] = run.output.output_dir


def _default(name: str) -> Any:
  return next(f.metadata['default'] for f in settings.FIELDS if f.name == name)
