"""Settings of the rule that chooses the clients of a round."""

import dataclasses
from typing import Any

from tff_adaptive import population
from tff_adaptive._utils import user_code
from tff_adaptive.population import choosing, cohort_rules
from tff_adaptive.registry import user_parts

from .. import fields, options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cohort(fields.Group):
  """The settings of the choice of clients; see `--help`."""

  TITLE = 'Which clients take part'

  cohort: str | None = fields.flag(
    'The rule that chooses the clients of a round: one of the list above, or your own, FILE.py:'
    'NAME. Default uniform.'
  )
  cohort_option: tuple[str, ...] = fields.flag(
    'An option of --cohort, NAME=VALUE; see the list above. May be repeated.', [], needs='cohort'
  )

  def sources(self) -> dict[str, user_code.UserCode]:
    """See `fields.Group.sources`."""
    part = self._part()
    return {} if part is None else {'cohort': part.source}

  def check(self) -> None:
    """Raises ValueError for an unknown rule or option, or one that cannot be used."""
    self.build('examples')

  def build(self, client_weighting: Any) -> choosing.Rule | None:
    """Returns the rule, None if none was named. Weights follow the weighting of clients."""
    if self.cohort is None:
      return None
    with fields.about('cohort_option'):
      values = options.parse('cohort_option', self.cohort_option)
    part = self._part()
    with fields.about('cohort_option' if values else 'cohort'):
      if part is not None:
        rule: Any = part.build(values)
        if not callable(rule):
          raise ValueError(
            f'{part.name} is no function of a population.Situation: give it __call__.'
          )
        choosing.needs_of(rule)
        return rule
      names = [option.name for option in self._options()]
      # Clients count in the objective as they do in the mean, unless the option says otherwise.
      if 'objective' in names and client_weighting in choosing.OBJECTIVES:
        values = {'objective': client_weighting, **values}
      return population.build_cohort(self.cohort, values)

  def _options(self) -> Any:
    fields.check_name('cohort', self.cohort, (*cohort_rules.COHORTS, 'FILE.py:NAME'))
    return cohort_rules.options_of(str(self.cohort))

  def _part(self) -> user_parts.UserPart | None:
    """Returns the user's own rule; None for a built-in one."""
    if self.cohort is None or not user_code.is_reference(self.cohort):
      return None
    with fields.about('cohort'):
      return user_parts.load(self.cohort, 'a function of a population.Situation')
