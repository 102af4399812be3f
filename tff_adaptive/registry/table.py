"""The entries of all algorithms, optimizers and schedules, as plain data.

The flags with their help, checks and defaults, the builders' arguments, the cost columns, the
labels of reports and the tables of the documentation are made from these entries. Nothing here
imports TensorFlow or TFF, so that commands can list, explain and check quickly. Code is named as
'module:attribute' and imported when something is built.

To add an algorithm, write its formulas in `tff_adaptive/corrections/` and an entry in
`registry.algorithms`. For one in a file of your own call `algorithm('my_file.py:MyCorrection')`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import user_code, validation
from tff_adaptive.registry import algorithms, described, user_entries
from tff_adaptive.registry.algorithms import BASELINES
from tff_adaptive.registry.entries import (
  Algorithm,
  Hyperparameter,
  Schedule,
  ServerOptimizer,
  by_name,
  named,
)


def _number(check: validation.Check, words: str) -> Callable[..., Hyperparameter]:
  """Returns a function that makes checked float hyperparameters; their help ends in `words`."""

  def describe(name: str, default: float, what: str, hint: str = '') -> Hyperparameter:
    return Hyperparameter(name, float, default, what + words, check, hint)

  return describe


decay = _number(validation.in_unit_interval, ', in [0, 1)')
above_zero = _number(validation.above_zero, ', > 0')
at_least_zero = _number(validation.at_least_zero, ', >= 0')
up_to_one = _number(validation.in_half_open_unit_interval, '')  # `what` names the range.

_TAU = above_zero(
  'tau',
  1e-3,
  'Degree of adaptivity',
  'the paper tunes it between 1e-5 and 1e-1, 1e-3 is its default',
)
_BIAS_CORRECTION = Hyperparameter(
  'bias_correction',
  bool,
  False,
  "Bias correction, as in the paper's published code; off in the paper",
)
_INITIAL_V = Hyperparameter(
  'initial_v',
  float,
  None,
  'First v; tau^2 unless given',
  validation.at_least_zero,
  'give a value such as 1e-6, or leave it out for tau^2',
)
_BETA1 = decay('beta1', 0.9, 'Decay of m')
_BETA2 = decay('beta2', 0.99, 'Decay of v')
_OF_ADAM = (_TAU, _BETA1, _BETA2, _BIAS_CORRECTION, _INITIAL_V)
_MOMENTUM = decay('momentum', 0.9, 'Momentum')
_DECOUPLED = at_least_zero('decay', 0.0, 'Decoupled weight decay')
_EPSILON = dataclasses.replace(_TAU, default=1e-8, hint='give 1e-8, say')
_MOMENTS = (_BETA1, dataclasses.replace(_BETA2, default=0.999), _EPSILON)
_LION = (_BETA1, _BETA2, _DECOUPLED)
_AS_PYTORCH = "SGD with Nesterov momentum, as PyTorch's"


def _optimizer(
  name: str, title: str, description: str, *hyperparameters: Hyperparameter, **options: Any
) -> ServerOptimizer:
  """Returns the entry of an optimizer that the function of the same name builds."""
  build = f'tff_adaptive.optimizers:build_{name}'
  return ServerOptimizer(name, title, description, build, hyperparameters, **options)


SERVER_OPTIMIZERS: Mapping[str, ServerOptimizer] = by_name(
  ServerOptimizer('sgd', 'SGD', 'x + eta Delta', 'tff_adaptive.optimizers:build_sgdm'),
  _optimizer('sgdm', 'SGDM', 'SGD with momentum', _MOMENTUM, has_momentum=True),
  _optimizer(
    'adagrad',
    'Adagrad',
    'v grows by Delta^2',
    *(_TAU, dataclasses.replace(_BETA1, default=0.0), _INITIAL_V),
  ),
  _optimizer('adam', 'Adam', 'v is a moving average of Delta^2', *_OF_ADAM, has_momentum=True),
  _optimizer(
    'yogi',
    'Yogi',
    'v moves towards Delta^2 by at most (1 - beta2) Delta^2',
    *_OF_ADAM,
    has_momentum=True,
  ),
  _optimizer(
    'nesterov', 'Nesterov', _AS_PYTORCH, _MOMENTUM, rate=0.7, has_momentum=True
  ),  # DiLoCo's.
  _optimizer(
    'lamb',
    'LAMB',
    "Adam's direction of each tensor, scaled to the tensor's norm",
    *(*_MOMENTS[:2], dataclasses.replace(_EPSILON, default=1e-6), _DECOUPLED),
    rate=0.01,
    has_momentum=True,
  ),
  _optimizer(
    'lion',
    'Lion',
    'the sign of beta1 m + (1 - beta1) Delta; m decays by beta2',
    *_LION,
    rate=1e-3,
    has_momentum=True,
  ),
)

CLIENT_OPTIMIZERS: Mapping[str, ServerOptimizer] = by_name(
  _optimizer('sgd', 'SGD', 'assumed by the corrections'),
  _optimizer('sgdm', 'SGDM', 'SGD with momentum', _MOMENTUM, rate=0.01),
  _optimizer('nesterov', 'Nesterov', _AS_PYTORCH, _MOMENTUM, rate=0.01),
  _optimizer(
    'adagrad',
    'Adagrad',
    'g / (sqrt(sum of g^2) + tau)',
    dataclasses.replace(_EPSILON, default=1e-7),
    dataclasses.replace(_INITIAL_V, default=0.0),
    rate=0.01,
  ),
  ServerOptimizer(
    'adam',
    'Adam',
    'with bias correction',
    'tff_adaptive.optimizers.published:build_adam_of_clients',
    _MOMENTS,
    rate=1e-3,
  ),
  _optimizer(
    'amsgrad', 'AMSGrad', 'Adam without bias correction whose v never falls', *_MOMENTS, rate=1e-3
  ),
  _optimizer(
    'adamw',
    'AdamW',
    'Adam with decoupled weight decay',
    *(*_MOMENTS, dataclasses.replace(_DECOUPLED, default=0.01)),
    rate=1e-3,
  ),
  _optimizer(
    'lion', 'Lion', 'the sign of beta1 m + (1 - beta1) g; m decays by beta2', *_LION, rate=1e-4
  ),
  _optimizer(
    'muon',
    'Muon',
    'orthogonal steps of matrices, AdamW for the rest',
    *(dataclasses.replace(_MOMENTUM, default=0.95), *_MOMENTS[1:], _DECOUPLED),
    rate=1e-3,
  ),
)

_WARMUP_ROUNDS = Hyperparameter('warmup_rounds', int, 0, 'Rounds of linear warm-up')


def _factor(default: float) -> Hyperparameter:
  return up_to_one('factor', default, 'Factor by which the rate shrinks, in (0, 1]')


def _schedule(name: str, kind: str, description: str, *own: Hyperparameter) -> Schedule:
  """Returns the entry of a schedule of class `kind`, with the option of a linear warm-up."""
  return Schedule(name, description, f'tff_adaptive.schedules:{kind}', (*own, _WARMUP_ROUNDS))


SCHEDULES: Mapping[str, Schedule] = by_name(
  _schedule('constant', 'Constant', 'the base rate in every round'),
  _schedule('inv_sqrt', 'InvSqrt', 'base rate / sqrt(t + 1)'),
  _schedule(
    'exp_decay',
    'ExpDecay',
    'base rate x 0.1 every 500 rounds, in steps',
    _factor(0.1),
    Hyperparameter('every', int, 500, 'Rounds of one step', validation.count),
  ),
  _schedule('round_decay', 'RoundDecay', 'base rate x 0.998 each round', _factor(0.998)),
  _schedule(
    'diminishing',
    'Diminishing',
    'base rate x gamma / (gamma + E t), E the option local_steps',
    Hyperparameter(
      'kappa', float, 1.0, "The problem's condition number, >= 1", validation.at_least_one
    ),
    Hyperparameter('local_steps', int, 1, 'E, the local steps of a round', validation.count),
  ),
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
      names = [name for name, server in SERVER_OPTIMIZERS.items() if server.has_momentum]
      by_server = {**by_server, **{n: with_momentum for n in names if n not in by_server}}
    of_entry.append(dataclasses.replace(h, default_with=by_server))
  return dataclasses.replace(entry, hyperparameters=tuple(of_entry))


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
  """
  if isinstance(spec, str) and len(pieces(spec)) > 1:
    return _chain([_piece(piece) for piece in pieces(spec)])
  if isinstance(spec, str) and spec in PARTS and spec not in ALGORITHMS:
    return _piece(spec)
  return _found('algorithm', spec, {**ALGORITHMS, **BASELINES}, user_entries.algorithm)


def pieces(spec: str) -> list[str]:
  """Splits the name of a chain, 'a+b', into its parts' names; any other name is one piece.

  The path in a 'FILE.py:NAME' may have a + too, if it is the last piece.
  """
  split = spec.split('+')
  for i, piece in enumerate(split):
    if piece not in ALGORITHMS and piece not in PARTS and not user_code.is_reference(piece):
      rest = '+'.join(split[i:])
      return [*split[:i], rest] if user_code.is_reference(rest) else split
  return split


def _piece(spec: str) -> Algorithm:
  """Returns the entry of a part of a chain."""
  if spec in PARTS and spec not in ALGORITHMS:
    return described.algorithm((PARTS[spec],), settings={}, is_chain=True)
  return _found('part of a chain', spec, {**PARTS, **ALGORITHMS}, user_entries.algorithm)


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
  weightings = {entry.client_weighting for entry in of_parts}
  sources = [entry.source for entry in of_parts if entry.source is not None]
  entry = described.algorithm(
    classes,
    declared=declared,
    name='+'.join(entry.name for entry in of_parts),
    title=' + '.join(entry.title for entry in of_parts),
    description=' + '.join(entry.description for entry in of_parts),
    server_optimizer=next(iter(servers), None),
    settings=settings,
    client_weighting='uniform' if 'uniform' in weightings else 'examples',
    source=sources[0] if sources else None,
    is_chain=True,
  )
  return _with_server_defaults(entry)


def server_optimizer(spec: str | ServerOptimizer) -> ServerOptimizer:
  """Returns the entry of a server optimizer; an entry is returned as it is.

  Args:
    spec: A name in `SERVER_OPTIMIZERS`, or 'FILE.py:NAME'. NAME is a `ServerOptimizer`, or a
      function that returns a `tff.learning.optimizers.Optimizer`. The function takes the learning
      rate, and then hyperparameters: float, int or bool arguments with a default.

  Raises:
    ValueError: See `algorithm`.
  """
  return _found('server optimizer', spec, SERVER_OPTIMIZERS, user_entries.server_optimizer)


def client_optimizer(spec: str | ServerOptimizer) -> ServerOptimizer:
  """Returns the entry of a client optimizer; see `server_optimizer`."""
  return _found('client optimizer', spec, CLIENT_OPTIMIZERS, user_entries.server_optimizer)


def _found(kind: str, spec: Any, table: Mapping[str, Any], of_user: Callable[[str], Any]) -> Any:
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
  named_after = {a.server_optimizer for a in ALGORITHMS.values() if not a.settings}
  return algorithm.server_optimizer == 'sgd' and server_optimizer not in named_after


def schedule(name: str) -> Schedule:
  """Returns the entry of a schedule; raises ValueError if there is no such schedule."""
  return named('schedule', name, SCHEDULES)
