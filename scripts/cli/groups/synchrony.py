"""Settings of synchronous and asynchronous training."""

import dataclasses
from typing import Any

from tff_adaptive._utils import suggestions
from tff_adaptive.asynchrony import settings as asynchrony

from .. import fields, options

BUFFERED = fields.Needs('synchrony', ('buffered',))
# The options of each kind of staleness.
_OPTIONS = {'polynomial': ('a',), 'hinge': ('a', 'b'), 'constant': ('c',), 'none': ()}


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
    ' to b, then 1 / (a (tau - b) + 1); constant, c for any tau above 0. Default polynomial.',
    choices=asynchrony.STALENESS,
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
      for name in given:
        if name not in _OPTIONS[kind]:
          raise ValueError(suggestions.unknown(f'option of {kind}', name, _OPTIONS[kind]))
      return asynchrony.Buffered(
        self.concurrency,
        kind,
        **given,
        max_staleness=self.max_staleness,
        mixing=bool(self.mixing),
      )
