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

  def check(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if the rule does not go with the other settings."""
    rule = self.build(settings)
    if rule is None:
      return
    algorithm = settings.what.algorithm_entry
    flag = f'--cohort={self.cohort}'
    if 'participation' in algorithm.settings or algorithm.pools_clients:
      raise ValueError(
        f'{flag} does not go with --algorithm={algorithm.name}, which trains all clients in every'
        ' round: leave out one of them.'
      )
    if settings.synchrony.build() is not None:
      raise ValueError(
        f'{flag} does not go with --synchrony=buffered, which draws the clients that begin one by'
        ' one: leave out one of them.'
      )
    aggregator = settings.aggregation.entry
    hides = aggregator.name == 'secure' and 'norms' in choosing.needs_of(rule)
    if aggregator.is_private or hides:
      raise ValueError(
        f'{flag} does not go with --aggregator={aggregator.name}, which must not depend on what a'
        ' single client sent, and assumes uniform draws where it reports an epsilon: leave out one'
        ' of them.'
      )
    if choosing.gives_weights(rule):
      self._check_weights(settings, flag)

  def _check_weights(self, settings: 'fields.Settings', flag: str) -> None:
    """Raises ValueError if updates cannot have weights."""
    algorithm = settings.what.algorithm_entry
    averages = settings.what.client_optimizer_state == 'average'
    if algorithm.uploads or averages:
      sends = algorithm.uploads or "the state of its client's optimizer"
      raise ValueError(
        f'{flag} gives updates weights, and a client of {algorithm.name} also sends {sends}, which'
        ' would have none: take another algorithm, such as fed_avg or fed_dyn.'
      )
    if settings.clients.client_weighting == 'tokens':
      raise ValueError(
        f'{flag} gives updates weights as the clients count in the objective: give'
        ' --client_weighting=examples or uniform.'
      )

  def build(self, settings: 'fields.Settings') -> choosing.Rule | None:
    """Returns the rule, None if none was named. Weights follow --client_weighting."""
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
      weighting = settings.clients.client_weighting
      if 'objective' in names and weighting in choosing.OBJECTIVES:
        values = {'objective': weighting, **values}
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
