"""The methods of the bench, and what a search varies. Nothing here imports TensorFlow."""

import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tff_adaptive import registry
from tff_adaptive._utils import user_code
from tff_adaptive.registry import described

from ..cli import flags as run_flags

_SGD = ('server_learning_rate=0.1,3,log',)
_ADAPTIVE = ('server_learning_rate=0.001,1,log', 'tau=0.00001,0.1,log')
_MU = ('mu=0.001,1,log',)
_RHO = ('sam_rho=0.01,0.5,log',)
_ALPHA = ('alpha=0.05,1,log',)
_ADAM_CLIENTS = ('client_learning_rate=0.0003,0.1,log',)  # Of optimizers that scale their steps.
# What is searched besides the client rate, as NAME=LOW,HIGH,log. A server rate of 1 is that of the
# papers of the others.
SEARCHED: Mapping[str, Sequence[str]] = {
  **dict.fromkeys(('fed_avg', 'fed_avgm', 'scaffold', 'fed_nova'), _SGD),
  **dict.fromkeys(('fed_adagrad', 'fed_adam', 'fed_yogi'), _ADAPTIVE),
  **dict.fromkeys(('fed_prox', 'fed_dyn'), _MU),
  'ada_best': (*_MU, 'beta=0.2,0.98'),
  'fed_cm': _ALPHA,
  'fed_exp': ('eps=0.0001,0.1,log',),
  'mime_lite': (),
  'fed_sam': _RHO,
  'delta_sgd': ('gamma=0.5,8,log', 'growth=0.01,1,log'),
  'fed_ada2': (*_ADAM_CLIENTS, 'server_learning_rate=0.001,1,log'),
  'scaffold_m': _SGD,
  'mime': (),
  'fed_gamma': (*_SGD, *_RHO),
  'mo_fed_sam': (*_ALPHA, *_RHO),
  'fed_speed': (*_MU, *_RHO),
  **dict.fromkeys(('diloco', 'fed_lalr'), (*_ADAM_CLIENTS, *_SGD)),
  'fed_dc': ('drift_weight=0.01,1,log',),
  'fed_acg': ('lookahead=0.5,0.95', 'pull=0.001,0.1,log'),
  'fed_init': ('relaxation=0.01,0.5,log',),
  'fed_varp': (),
  'fed_lesam': ('rho=0.01,0.5,log',),
  'fed_smoo': (*_MU, 'rho=0.01,0.5,log'),
  'q_fed_avg': ('q=0.1,10,log',),
  'afl': ('lambda_rate=0.0001,0.1,log',),
  'moon': ('contrast=0.1,10,log', 'temperature=0.1,2,log'),
  'fed_ntd': ('distillation=0.1,3,log', 'softening=1,5'),
  'fed_lc': ('calibration=0.1,3,log',),
  **dict.fromkeys(('fed_adamw', 'fed_muon', 'fed_lada'), (*_ADAM_CLIENTS, 'global_share=0.1,0.95')),
}
# Methods that the bench does not compare, with the reason.
_LEFT_OUT = {
  'scaffnew': 'it needs all clients in each round and draws the number of local steps',
  'per_fed_avg': 'its model is meant to be fine-tuned by each client before it is used',
}
PERSONAL = 'its result is a model for each client, and the bench evaluates one model for all'
_CLIENT_RATE = 'client_learning_rate'
_BASES = (2, 3, 5, 7, 11, 13)  # Of the Halton sequence.


class Range(NamedTuple):
  """Numbers from `low` to `high`, evenly spaced in their logarithms if `is_log`."""

  low: float
  high: float
  is_log: bool

  def at(self, share: float) -> float:
    """Returns the number at a share of the way through the range, with four digits."""
    value = self.low + share * (self.high - self.low)
    if self.is_log:
      value = self.low * (self.high / self.low) ** share
    return float(f'{value:.4g}')


class Budget(NamedTuple):
  """How many runs a method gets on a problem.

  Attributes:
    trials: Number of runs that choose the rates.
    seeds: The seeds of the runs that count.
    searches_all: Whether the method's own settings are searched too, not the client rate alone.
    about: What the search does, in words.
  """

  trials: int
  seeds: tuple[int, ...]
  searches_all: bool
  about: str


TUNING_SEED = 100
BUDGETS: Mapping[str, Budget] = {
  'small': Budget(
    4,
    (1, 2, 3),
    False,
    'four client rates, evenly spaced in their logarithms; all other settings have their defaults',
  ),
  'full': Budget(
    12,
    (1, 2, 3, 4, 5),
    True,
    "twelve points of a Halton sequence in the client rate and the method's own settings",
  ),
}


@dataclasses.dataclass(frozen=True)
class Method:
  """A method of the bench.

  Attributes:
    reference: Its name in the registry, a chain, or FILE.py:NAME.
    flags: Further flags of train.py by name.
    searched: What is searched besides the client rate, as NAME=LOW,HIGH or NAME=LOW,HIGH,log.
  """

  reference: str
  flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  searched: Sequence[str] = ()

  @property
  def entry(self) -> registry.Algorithm:
    """The registry's entry; loads a user's file."""
    return registry.algorithm(self.reference)

  @property
  def title(self) -> str:
    """What tables call it."""
    return f'{self.entry.title}{self._more(", ")}'

  @property
  def key(self) -> str:
    """Its name in rows: that of the registry, or FILE.py:NAME without its folder."""
    name = self.reference
    if user_code.is_reference(name):
      name = os.path.basename(name)
    return f'{name}{self._more(" ")}'

  @property
  def is_built_in(self) -> bool:
    """Whether it is an algorithm of the registry with its defaults."""
    return self.reference in registry.ALGORITHMS and not self.flags and not self.searched

  def digest(self) -> str:
    """Returns digits that change with the user's files and the flags; '' for built-in methods."""
    parts = []
    # A flag may name a file too, as server_optimizer=mine.py:NAME does.
    of_flags = [value for value in self.flags.values() if isinstance(value, str)]
    for piece in [*registry.pieces(self.reference), *of_flags]:
      if user_code.is_reference(piece):
        _, source = user_code.load(piece)
        parts += [source.sha256, *map(str, source.modules)]
    if not (parts or self.flags or self.searched):
      return ''
    text = repr([*parts, sorted(map(str, self.flags.items())), *self.searched])
    return hashlib.sha256(text.encode()).hexdigest()[:12]

  def _more(self, separator: str) -> str:
    pairs = run_flags.command_line(self.flags)
    return ''.join(f'{separator}{pair.removeprefix("--")}' for pair in pairs)


def built_in() -> list[Method]:
  """Returns the methods of the registry that the bench compares."""
  return [Method(name) for name in registry.ALGORITHMS if name not in left_out()]


def left_out() -> dict[str, str]:
  """Returns why some methods of the registry are not compared, by name."""
  reasons = dict(_LEFT_OUT)
  for name, entry in registry.ALGORITHMS.items():
    if any(_is_personal(part) for part in described.classes_of(entry)):
      reasons[name] = PERSONAL
  return reasons


def has_client_models(method: Method) -> bool:
  """Returns whether a method, also one of a user's own, has a model for each client."""
  return any(part.overrides('personal') for part in described.classes_of(method.entry))


def _is_personal(part: Any) -> bool:
  """Returns whether a correction gives clients models of their own, or keeps weights from them."""
  return part.overrides('personal') or part.overrides('resolved')


def axes(method: Method, rates: tuple[float, float], budget: Budget) -> dict[str, Range]:
  """Returns what a search varies: ranges by name, the client rate first."""
  more = [read_range(text) for text in (*SEARCHED.get(method.reference, ()), *method.searched)]
  ranges = {_CLIENT_RATE: Range(*rates, is_log=True)}
  for name, limits in more:
    # Optimizers that scale their steps have client rates of their own, with any budget.
    if budget.searches_all or name == _CLIENT_RATE:
      ranges[name] = limits
  return ranges


def read_range(text: str) -> tuple[str, Range]:
  """Parses NAME=LOW,HIGH or NAME=LOW,HIGH,log. Raises ValueError for other texts."""
  name, _, values = text.partition('=')
  parts = values.split(',')
  numbers: list[float] = []
  with contextlib.suppress(ValueError):
    numbers = [float(part) for part in parts[:2]]
  if name.isidentifier() and len(numbers) == 2 and parts[2:] in ([], ['log']):
    low, high = numbers
    is_log = parts[2:] == ['log']
    is_possible = low > 0 or not is_log
    if is_possible and -math.inf < low < high < math.inf:
      return name, Range(low, high, is_log)
  raise ValueError(
    f'--search={text}: write it as NAME=LOW,HIGH or NAME=LOW,HIGH,log, with LOW less than HIGH, and'
    ' above 0 with log.'
  )


def points(method: Method, rates: tuple[float, float], budget: Budget) -> list[dict[str, float]]:
  """Returns the settings of the trials: a grid of one axis, or a Halton sequence of several."""
  ranges = axes(method, rates, budget)
  trials = []
  for number in range(budget.trials):
    point = {}
    for base, (name, limits) in zip(_BASES, ranges.items()):
      share = number / max(1, budget.trials - 1)
      if budget.searches_all:
        # From 1 on, because the first number is 0: the low end of all ranges at once.
        share = halton(number + 1, base)
      point[name] = limits.at(share)
    trials.append(point)
  return trials


def halton(number: int, base: int) -> float:
  """Returns a number of the van der Corput sequence: the digits of `number` after the point."""
  # From the last digit on, which stands first after the point.
  share = 0.0
  weight = 1.0
  while number:
    weight /= base
    number, digit = divmod(number, base)
    share += weight * digit
  return share
