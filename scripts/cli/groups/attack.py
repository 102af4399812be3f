"""Settings of clients that attack."""

import dataclasses
from typing import Any

from tff_adaptive import population
from tff_adaptive._utils import suggestions, validation
from tff_adaptive.population import attacks

from .. import fields, options

_OPTIONS = ('scale', 'classes')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack(fields.Group):
  """The settings of clients that attack; see `--help`."""

  TITLE = 'Clients that attack, for experiments (by default none)'

  attackers: float | None = fields.number(
    'The share of the clients that attack whenever they take part; the seed draws which.',
    validation.in_unit_interval,
  )
  attack: str | None = fields.flag(
    'What they do: label_flip, train with the label C - 1 - y; sign_flip, send -s times the update;'
    ' scaling, s times; noise, add noise of s times its norm; free_rider, send 0; inner_product,'
    ' send -s times the mean of the others. Default sign_flip.',
    choices=attacks.ATTACKS,
    needs='attackers',
  )
  attack_option: tuple[str, ...] = fields.flag(
    'An option of --attack, NAME=VALUE: scale, which is s (default 10 for scaling, else 1), or'
    ' classes, which is C, for label_flip. May be repeated.',
    [],
    needs='attackers',
  )

  def check(self) -> None:
    """Raises ValueError for a bad share or option."""
    self.build()

  def build(self) -> attacks.Attackers | None:
    """Returns the attackers, None if there are none."""
    if self.attackers is None:
      return None
    with fields.about('attack_option'):
      values: dict[str, Any] = options.parse('attack_option', self.attack_option)
      for name in values:
        if name not in _OPTIONS:
          raise ValueError(suggestions.unknown('option of attack', name, _OPTIONS))
    with fields.about('attackers'):
      return population.Attackers(self.attackers, self.attack or 'sign_flip', **values)
