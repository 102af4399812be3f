"""Settings of aggregation and privacy."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import user_code, validation
from tff_adaptive.aggregation import table
from tff_adaptive.registry import entries

from .. import fields, options
from . import training as local_training

if TYPE_CHECKING:
  from tff_adaptive import aggregation
  from tff_adaptive.aggregation import accounting


_PRIVATE = fields.Needs(
  'aggregator', tuple(a.name for a in table.AGGREGATORS.values() if a.is_private)
)


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
    if entry.is_weighted:
      return {}
    return {'client_weighting': 'uniform'}

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
  def option_values(self) -> dict[str, Any]:
    """All options of the aggregator by name, checked. Options that are not given have defaults."""
    with fields.about('aggregator_option'):
      return self.entry.values(options.parse('aggregator_option', self.aggregator_option))

  def check(self) -> None:
    """Raises ValueError if an option of the aggregator is unknown or out of range."""
    _ = self.option_values

  def plan(
    self, training: local_training.Training, num_clients: int, seed: int
  ) -> PrivacyPlan | None:
    """Returns how the run is private; None without differential privacy.

    Args:
      training: Says how many rounds there are, and how many clients take part in one.
      num_clients: The number of the task's clients.
      seed: The seed of the cohorts.

    Raises:
      ValueError: If no noise can meet --target_epsilon, or the noise is too small.
    """
    if not self.entry.is_private:
      return None
    from tff_adaptive.aggregation import accounting  # It imports SciPy, which takes long.

    values = self.option_values
    delta = self.delta or accounting.default_delta(num_clients)
    make = self._accountant(training, num_clients, seed)
    noise = values['noise_multiplier']
    with fields.about(f'aggregator={self.aggregator}'):
      if noise is None:
        target = self.target_epsilon or 0.0
        noise = accounting.noise_multiplier_for(target, make, training.rounds, delta)
      if values.get('adaptive'):
        stddev = accounting.count_stddev(training.clients_per_round, values['count_stddev'])
        accounting.update_noise_multiplier(noise, stddev)  # Refuses noise that is too small.
    return PrivacyPlan(make(noise), delta)

  def build(
    self, training: local_training.Training, model: Any, privacy: PrivacyPlan | None
  ) -> 'aggregation.Factory | None':
    """Returns TFF's aggregation factory, or None for the mean. `privacy` comes from `plan`."""
    if self.aggregator == 'mean':
      return None
    from tff_adaptive import aggregation

    values = self.option_values
    if privacy is not None:
      values['noise_multiplier'] = privacy.accountant.noise_multiplier
    cohort = aggregation.Cohort(
      training.clients_per_round,
      model.initial_weights[0],
      self.noise_seed,
    )
    if user_code.is_reference(self.aggregator):
      return aggregation.build_aggregator(self.entry, values, cohort)
    with fields.about('aggregator_option'):
      return aggregation.build_aggregator(self.entry, values, cohort)

  def _accountant(
    self, training: local_training.Training, num_clients: int, seed: int
  ) -> Callable[[float], Any]:
    """Returns a function from the noise multiplier to the accountant."""
    from tff_adaptive.aggregation import accounting
    from tff_adaptive.training import cohorts

    size = training.clients_per_round
    if self.aggregator == 'dp_gaussian':
      return lambda noise: accounting.SampledGaussian(num_clients, size, noise)
    tree = accounting.TreeGaussian(
      num_clients, lambda t: cohorts.sample(seed, t, num_clients, size), 1.0
    )
    return tree.with_noise
