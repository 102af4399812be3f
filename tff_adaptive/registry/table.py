"""The entries of all algorithms, optimizers and schedules by name, and of a user's own.

The flags with their help, checks and defaults, the cost columns, the labels of reports and the
tables of the documentation are made from these entries. Nothing here imports TensorFlow or TFF, so
that commands can list, explain and check quickly.

The entries follow from classes that describe themselves: corrections, optimizers and schedules. For
one in a file of your own call `algorithm('my_file.py:MyCorrection')`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive import schedules
from tff_adaptive._utils import user_code
from tff_adaptive.registry import algorithms, described, optimizers, user_entries
from tff_adaptive.registry.algorithms import BASELINES
from tff_adaptive.registry.entries import (
  Algorithm,
  Hyperparameter,
  Schedule,
  ServerOptimizer,
  by_name,
  named,
)


def _with_server_defaults(entry: Algorithm) -> Algorithm:
  """Returns an entry whose hyperparameters have a default for each server optimizer by name.

  'momentum' in a part's `default_with` stands for all server optimizers with momentum.
  """
  of_entry = []
  for h in entry.hyperparameters:
    by_server = dict(h.default_with)
    with_momentum = by_server.pop('momentum', None)
    if with_momentum is not None:
      # A default for one optimizer by its name goes before that for all with momentum.
      names = [name for name, server in SERVER_OPTIMIZERS.items() if server.has_momentum]
      by_server = {**by_server, **{n: with_momentum for n in names if n not in by_server}}
    of_entry.append(dataclasses.replace(h, default_with=by_server))
  return dataclasses.replace(entry, hyperparameters=tuple(of_entry))


SERVER_OPTIMIZERS: Mapping[str, ServerOptimizer] = by_name(*optimizers.listed('server'))
CLIENT_OPTIMIZERS: Mapping[str, ServerOptimizer] = by_name(*optimizers.listed('clients'))
SCHEDULES: Mapping[str, Schedule] = by_name(
  *(
    Schedule(kind.name, kind.summary, kind, kind.hyperparameters())
    for kind in schedules.KINDS.values()
  )
)
ALGORITHMS: Mapping[str, Algorithm] = by_name(
  *map(_with_server_defaults, algorithms.ALGORITHMS.values())
)
PARTS = algorithms.PARTS


def algorithm(spec: str | Algorithm) -> Algorithm:
  """Returns the entry of an algorithm; an entry is returned as it is.

  Args:
    spec: A name in `ALGORITHMS` or `BASELINES`, 'FILE.py:NAME', or several of these and of `PARTS`
      with + between them, which are a chain: 'scaffold+sam'. NAME is an `Algorithm`, or a frozen
      dataclass that subclasses `corrections.Correction`. Each field of such a class, a float, int
      or bool with a default, is a hyperparameter; `corrections.option` gives it help and a range.
      Class attributes describe it (see `corrections.Correction`); without a `name` and a `summary`
      these are the class's name and the docstring's first line. The fields `num_clients` and
      `mean_examples` are set from the clients and need no default. The costs of the class are
      traced; an `Algorithm` may have its own `counts`.

  Raises:
    ValueError: If there is no such name, the file has no such algorithm, or the parts of a chain
      exclude each other.
    TypeError: If it is neither a name nor an entry.
  """
  if not isinstance(spec, (str, Algorithm)):
    raise TypeError(
      f'algorithm must be a name, such as scaffold+sam, or an entry of the registry, found'
      f' {type(spec).__name__}: of a correction or a chain, build_drift_corrected makes a process.'
    )
  if isinstance(spec, str) and len(pieces(spec)) > 1:
    return _chain([_piece(piece) for piece in pieces(spec)])
  if isinstance(spec, str) and spec in PARTS and spec not in ALGORITHMS:
    return _piece(spec)
  return _entry('algorithm', spec, {**ALGORITHMS, **BASELINES}, user_entries.algorithm)


def pieces(spec: str) -> list[str]:
  """Splits the name of a chain, 'a+b', into its parts' names; any other name is one piece.

  The path in a 'FILE.py:NAME' may have a + too, if it is the last piece.
  """
  split = spec.split('+')
  for i, piece in enumerate(split):
    if piece not in ALGORITHMS and piece not in PARTS and not user_code.is_reference(piece):
      rest = '+'.join(split[i:])
      if user_code.is_reference(rest):
        return [*split[:i], rest]
      return split
  return split


def _piece(spec: str) -> Algorithm:
  """Returns the entry of a part of a chain."""
  if spec in PARTS and spec not in ALGORITHMS:
    return described.algorithm((PARTS[spec],), settings={}, is_chain=True)
  return _entry('part of a chain', spec, {**PARTS, **ALGORITHMS}, user_entries.algorithm)


def _chain(of_parts: list[Algorithm]) -> Algorithm:
  """Returns the entry of a chain: the parts' classes and settings together."""
  classes: list[Any] = []
  declared: list[tuple[Hyperparameter, ...]] = []
  settings: dict[str, Any] = {}
  for entry in of_parts:
    classes_of_entry = described.classes_of(entry)
    classes += classes_of_entry
    if classes_of_entry:  # An entry has one part, or none, as FedAvg.
      declared.append(entry.hyperparameters)
    for name, value in entry.settings.items():
      if settings.setdefault(name, value) != value:
        raise ValueError(
          f'{name} is {settings[name]} in one part of the chain and {value} in {entry.name}: leave'
          ' one of them out.'
        )
  # SGD with rate 1 is what a chain has anyway.
  servers = {entry.server_optimizer or 'sgd' for entry in of_parts} - {'sgd'}
  if len(servers) > 1:
    raise ValueError(
      f'the parts of a chain stand for several server optimizers ({", ".join(sorted(servers))}):'
      ' name one.'
    )
  # One part that is published with equal weights is enough: its formulas may be wrong with others.
  weighting = 'examples'
  if any(entry.client_weighting == 'uniform' for entry in of_parts):
    weighting = 'uniform'
  sources = [entry.source for entry in of_parts if entry.source is not None]
  entry = described.algorithm(
    classes,
    declared=declared,
    name='+'.join(entry.name for entry in of_parts),
    title=' + '.join(entry.title for entry in of_parts),
    description=' + '.join(entry.description for entry in of_parts),
    server_optimizer=next(iter(servers), None),
    settings=settings,
    client_weighting=weighting,
    source=next(iter(sources), None),
    is_chain=True,
  )
  return _with_server_defaults(entry)


def server_optimizer(spec: str | ServerOptimizer) -> ServerOptimizer:
  """Returns the entry of a server optimizer; an entry is returned as it is.

  Args:
    spec: A name in `SERVER_OPTIMIZERS`, or 'FILE.py:NAME'. NAME is a frozen dataclass that
      subclasses `optimizers.Formula`, a `ServerOptimizer`, or a function that returns a
      `tff.learning.optimizers.Optimizer`. The function takes the learning rate, and then
      hyperparameters: float, int or bool arguments with a default.

  Raises:
    ValueError: See `algorithm`.
  """
  of_user = functools.partial(user_entries.optimizer, role='server')
  return _entry('server optimizer', spec, SERVER_OPTIMIZERS, of_user)


def client_optimizer(spec: str | ServerOptimizer) -> ServerOptimizer:
  """Returns the entry of a client optimizer; see `server_optimizer`."""
  of_user = functools.partial(user_entries.optimizer, role='clients')
  return _entry('client optimizer', spec, CLIENT_OPTIMIZERS, of_user)


def _entry(kind: str, spec: Any, table: Mapping[str, Any], of_user: Callable[[str], Any]) -> Any:
  if not isinstance(spec, str):
    return spec
  if user_code.is_reference(spec):
    return of_user(spec)
  return named(kind, spec, table)


def takes(algorithm: Algorithm, server_optimizer: str | None) -> bool:
  """Returns whether an algorithm accepts a server optimizer: a name, 'FILE.py:NAME', or None.

  None is always accepted. An algorithm that is named after one optimizer accepts no other. One
  with SGD, such as FedAvg, also accepts the optimizers after which no algorithm is named.
  """
  if algorithm.server_optimizer in (None, server_optimizer) or not server_optimizer:
    return True
  # An algorithm with settings, such as DiLoCo, is more than its server optimizer: FedAvg may have
  # Nesterov momentum, too.
  named_after = {a.server_optimizer for a in ALGORITHMS.values() if not a.settings}
  return algorithm.server_optimizer == 'sgd' and server_optimizer not in named_after


def schedule(name: str) -> Schedule:
  """Returns the entry of a schedule; raises ValueError if there is no such schedule."""
  return named('schedule', name, SCHEDULES)
