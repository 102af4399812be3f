"""Settings of synchronous and asynchronous training."""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

from tff_adaptive._utils import suggestions, user_code
from tff_adaptive.asynchrony import settings as asynchrony
from tff_adaptive.registry import user_parts

from .. import fields, options

BUFFERED = fields.Needs('synchrony', ('buffered',))
# The options of each kind of staleness.
OPTIONS = {'polynomial': ('a',), 'hinge': ('a', 'b'), 'constant': ('c',), 'none': ()}


def _check_staleness(staleness: str) -> None:
  """Raises ValueError for an unknown staleness; a user's own is checked when it is loaded."""
  if not user_code.is_reference(staleness):
    fields.check_name('staleness', staleness, (*asynchrony.STALENESS, 'FILE.py:NAME'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synchrony(fields.Group):
  """The settings of asynchronous training; synchronous rounds use none of them."""

  TITLE = 'Asynchronous training (a round is a step of the server)'

  synchrony: str | None = fields.flag(
    'synchronous: the server waits for the clients that it drew; buffered: it takes a step whenever'
    ' --buffer_size clients have arrived (FedBuff; FedAsync with a buffer of 1). Default'
    ' synchronous.',
    choices=('synchronous', 'buffered'),
  )
  concurrency: int | None = fields.count(
    'Number of clients that train at a time, with --synchrony=buffered.', needs=BUFFERED
  )
  staleness: str | None = fields.flag(
    'Factor of an update that is tau server steps old: none; polynomial, (1 + tau)^-a; hinge, 1 up'
    ' to b, then 1 / (a (tau - b) + 1); constant, c for any tau above 0; or your own, FILE.py:NAME,'
    ' a function of tau. Default polynomial.',
    check=lambda name, value: _check_staleness(value),
    needs=BUFFERED,
  )
  staleness_option: tuple[str, ...] = fields.flag(
    'An option of --staleness, NAME=VALUE: a=0.5 for polynomial; a=10 and b=4 for hinge; c=0.5 for'
    ' constant. May be repeated.',
    [],
    needs=BUFFERED,
  )
  max_staleness: int | None = fields.count(
    'Drop updates that are older than this number of server steps. Default none.',
    zero='no older update',
    needs=BUFFERED,
  )
  mixing: bool | None = fields.flag(
    "Take updates relative to the present model, not to the client's first one, as in FedAsync.",
    needs=BUFFERED,
  )

  def sources(self) -> dict[str, user_code.UserCode]:
    """See `fields.Group.sources`."""
    if self.staleness is None or not user_code.is_reference(self.staleness):
      return {}
    return {'staleness': user_code.load(self.staleness)[1]}

  def check(self) -> None:
    """Raises ValueError if --synchrony=buffered lacks a setting or has a bad one."""
    self.build()

  def build(self) -> asynchrony.Buffered | None:
    """Returns `TrainingConfig.asynchrony`, None if synchronous. Raises ValueError for bad flags."""
    if self.synchrony != 'buffered':
      return None
    if self.concurrency is None:
      raise ValueError('--synchrony=buffered needs --concurrency (see --help): give 50, say.')
    with fields.about('staleness_option'):
      given: dict[str, Any] = options.parse('staleness_option', self.staleness_option)
      kind = self.staleness or 'polynomial'
      more = {'max_staleness': self.max_staleness, 'mixing': bool(self.mixing)}
      if user_code.is_reference(kind):
        part = user_parts.load(kind, 'a function of the staleness tau')
        return _with_factor(part.name, part.build(given))(self.concurrency, **more)  # type: ignore[arg-type]
      for name in given:
        if name not in OPTIONS[kind]:
          raise ValueError(suggestions.unknown(f'option of {kind}', name, OPTIONS[kind]))
      return asynchrony.Buffered(self.concurrency, kind, **given, **more)  # type: ignore[arg-type]


def _with_factor(name: str, function: Callable[[int], float]) -> type[asynchrony.Buffered]:
  """Returns the class of settings whose factor is a user's function. Raises ValueError if bad."""
  # A trial call, so that a function of another form is refused before training.
  first: Any = function(0)
  if not isinstance(first, numbers.Real) or not math.isfinite(first):
    raise ValueError(f'{name}(0) is {first!r:.80}: give a finite number for each staleness.')

  class Own(asynchrony.Buffered):
    """Settings with a factor of the user's own."""

    def factor(self, tau: int) -> float:
      """Returns s(tau)."""
      return float(function(tau))

  return Own
