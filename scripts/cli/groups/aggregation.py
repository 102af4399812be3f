"""Settings of aggregation and privacy."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import user_code, validation
from tff_adaptive.aggregation import table
from tff_adaptive.registry import entries

from .. import fields, options

if TYPE_CHECKING:
  from tff_adaptive import aggregation
  from tff_adaptive.aggregation import accounting


_PRIVATE = 'aggregator=' + ' or '.join(a.name for a in table.AGGREGATORS.values() if a.is_private)


def _check_name(aggregator: str) -> None:
  """Raises ValueError for an unknown aggregator; a user's own is checked when it is loaded."""
  if not user_code.is_reference(aggregator):
    fields.check_name('aggregator', aggregator, (*table.AGGREGATORS, 'FILE.py:NAME'))


@dataclasses.dataclass(frozen=True)
class PrivacyPlan:
  """The accountant of a differentially private run, and the delta of the epsilon it reports."""

  accountant: 'accounting.Accountant'
  delta: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregation(fields.Group):
  """The settings of aggregation and privacy; see `--help`."""

  TITLE = 'Aggregation and privacy'

  aggregator: str = fields.flag(
    'How the server combines updates: one of the list above, or your own, FILE.py:NAME.',
    'mean',
    lambda name, value: _check_name(value),
  )
  aggregator_option: tuple[str, ...] = fields.flag(
    'An option of the aggregator, NAME=VALUE; see the list above. May be repeated.', []
  )
  target_epsilon: float | None = fields.number(
    'For dp_gaussian and dp_tree: use the least noise with which all rounds together meet this'
    ' epsilon at --delta.',
    validation.above_zero,
    needs=_PRIVATE,
  )
  delta: float | None = fields.number(
    'delta of the epsilon that is reported. Default N^-1.1, N the number of clients.',
    validation.in_unit_interval,
    needs=_PRIVATE,
  )
  noise_seed: int | None = fields.count(
    'Make the noise of dp_gaussian and dp_tree reproducible, for experiments. It then hides'
    ' nothing from those who know the seed. Default: a secret drawn by the operating system.',
    zero='the seed 0',
    needs=_PRIVATE,
    high=2**62 - 1,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns uniform `client_weighting` if the aggregator cannot weight clients, else {}."""
    with fields.about('aggregator'):
      entry = table.aggregator(values['aggregator'])
    return {} if entry.is_weighted else {'client_weighting': 'uniform'}

  @property
  def entry(self) -> entries.Aggregator:
    """The entry of the aggregator in `aggregation.table`."""
    return table.aggregator(self.aggregator)

  def sources(self) -> dict[str, user_code.UserCode]:
    """See `fields.Group.sources`."""
    if not user_code.is_reference(self.aggregator):
      return {}
    return {'aggregator': user_code.load(self.aggregator)[1]}

  @property
  def chosen(self) -> dict[str, Any]:
    """All options of the aggregator by name, checked. Options that are not given have defaults."""
    with fields.about('aggregator_option'):
      return self.entry.values(options.parse('aggregator_option', self.aggregator_option))

  def check(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if the aggregator cannot be combined with the other settings."""
    entry, chosen = self.entry, self.chosen
    weighting = settings.clients.client_weighting
    with fields.about('aggregator'):
      what = settings.what
      state = what.client_optimizer_state
      table.check(entry, what.algorithm_entry, settings.correction, weighting, state)
    if entry.name == 'secure' and settings.runtime.engine == 'native':
      raise ValueError(
        "--aggregator=secure does not go with --engine=native: TFF's own runtime has no secure"
        ' sums; leave out --engine.'
      )
    if not entry.is_private:
      return
    if self.delta == 0:
      raise ValueError(
        '--delta must be above 0, found 0: Gaussian noise has no finite epsilon for delta 0.'
      )
    if (chosen['noise_multiplier'] is None) == (self.target_epsilon is None):
      raise ValueError(
        f'--aggregator={entry.name} needs either --target_epsilon or'
        ' --aggregator_option=noise_multiplier=VALUE: give one of them.'
      )
    for flags, is_given in (
      ('--synchrony=buffered', settings.synchrony.build() is not None),
      ('flags of a population', settings.population.availability is not None),
    ):
      if is_given:
        raise ValueError(
          f'--aggregator={self.aggregator} does not go with {flags}: its epsilon'
          ' assumes that each cohort is drawn from all clients and that all of them finish.'
        )

  def plan(self, settings: 'fields.Settings', num_clients: int) -> PrivacyPlan | None:
    """Returns the plan for a task of `num_clients` clients, None without differential privacy."""
    if not self.entry.is_private:
      return None
    from tff_adaptive.aggregation import accounting  # It imports SciPy, which takes long.

    chosen = self.chosen
    delta = self.delta or accounting.default_delta(num_clients)
    make = self._accountant(settings, num_clients)
    noise = chosen['noise_multiplier']
    with fields.about(f'aggregator={self.aggregator}'):
      if noise is None:
        noise = accounting.noise_multiplier_for(
          self.target_epsilon or 0.0, make, settings.training.rounds, delta
        )
      if chosen.get('adaptive'):
        stddev = accounting.count_stddev(
          settings.training.clients_per_round, chosen['count_stddev']
        )
        accounting.update_noise_multiplier(noise, stddev)
    return PrivacyPlan(make(noise), delta)

  def build(
    self, settings: 'fields.Settings', model: Any, privacy: PrivacyPlan | None
  ) -> 'aggregation.Factory | None':
    """Returns TFF's aggregation factory, or None for the mean. `privacy` comes from `plan`."""
    if self.aggregator == 'mean':
      return None
    from tff_adaptive import aggregation

    chosen = self.chosen
    if privacy is not None:
      chosen['noise_multiplier'] = privacy.accountant.noise_multiplier
    cohort = aggregation.Cohort(
      settings.training.clients_per_round,
      model.initial_weights[0],
      self.noise_seed,
    )
    return aggregation.build_aggregator(self.entry, chosen, cohort)

  def _accountant(self, settings: 'fields.Settings', num_clients: int) -> Callable[[float], Any]:
    from tff_adaptive.aggregation import accounting
    from tff_adaptive.training import cohorts

    size, seed = settings.training.clients_per_round, settings.what.seed
    if self.aggregator == 'dp_gaussian':
      return lambda noise: accounting.SampledGaussian(num_clients, size, noise)
    tree = accounting.TreeGaussian(
      num_clients, lambda t: cohorts.sample(seed, t, num_clients, size), 1.0
    )
    return tree.with_noise
