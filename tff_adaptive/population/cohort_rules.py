"""The built-in rules that choose the clients of a round; for the interface see `choosing`."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tff_adaptive._utils import draws, hyperparameters, suggestions, validation
from tff_adaptive.population import choosing, oort

_OBJECTIVE_HELP = 'The shares of clients in the objective: as their examples, or uniform'


def _objective() -> Any:
  return hyperparameters.option('examples', _OBJECTIVE_HELP, choices=choosing.OBJECTIVES)


@dataclasses.dataclass(frozen=True)
class Uniform:
  """Clients are drawn uniformly, without replacement."""

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    generator = draws.generator(situation.seed, situation.round_number)
    drawn = generator.choice(len(situation.available), size=situation.size, replace=False)
    return choosing.Choice(situation.available[drawn])


@dataclasses.dataclass(frozen=True)
class _WithReplacement:
  """The base class of rules that draw m times with replacement, with probabilities p_i.

  The weight of a draw of client i is q_i / (m p_i), with its share q_i in the objective. The
  aggregate is then an unbiased estimate of sum_i q_i g_i over the available clients.
  """

  is_weighted: ClassVar[bool] = True
  objective: str = _objective()

  def probabilities(self, situation: choosing.Situation) -> np.ndarray:
    """Returns p_i for each available client."""
    raise NotImplementedError

  def of_draws(self, situation: choosing.Situation, drawn: np.ndarray) -> choosing.Choice:
    """Returns the choice for draws, positions in `situation.available`."""
    p = self.probabilities(situation)
    q = situation.shares(self.objective)
    return choosing.Choice(situation.available[drawn], q[drawn] / (len(drawn) * p[drawn]))

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    p = self.probabilities(situation)
    drawn = situation.generator().choice(len(p), size=situation.size, p=p)
    return self.of_draws(situation, drawn)


@dataclasses.dataclass(frozen=True)
class Replacement(_WithReplacement):
  """Clients are drawn uniformly, with replacement."""

  def probabilities(self, situation: choosing.Situation) -> np.ndarray:
    """Returns p_i for each available client."""
    return situation.shares('uniform')


@dataclasses.dataclass(frozen=True)
class BySize(_WithReplacement):
  """Clients are drawn with replacement, with probabilities as their numbers of examples.

  "On the Convergence of FedAvg on Non-IID Data" (Li et al., ICLR 2020), Scheme I.
  """

  def probabilities(self, situation: choosing.Situation) -> np.ndarray:
    """Returns p_i for each available client."""
    return situation.shares('examples')


@dataclasses.dataclass(frozen=True)
class Importance(_WithReplacement):
  """Clients are drawn with replacement, with probabilities as their last norms or losses.

  p_i = (1 - mix) q_i v_i / sum_j q_j v_j + mix / N, with v_i the norm of the client's last update,
  or its loss when it last began to train. A client that has not taken part has the mean v of the
  others. With the norms of the present round these p_i would give the least variance ("Optimal
  Client Sampling for Federated Learning", Chen et al., TMLR 2022).

  Attributes:
    by: 'norms' or 'losses'.
    mix: The share of uniform draws, in (0, 1], which bounds the weights.
  """

  by: str = hyperparameters.option(
    'norms', 'What probabilities follow: norms of updates, or losses', choices=('norms', 'losses')
  )
  mix: float = hyperparameters.option(
    0.2, 'The share of uniform draws', validation.in_half_open_unit_interval, 'give 0.2, say'
  )

  @property
  def needs(self) -> tuple[str, ...]:
    """What the rule needs of earlier rounds."""
    if self.by == 'norms':
      return ('norms',)
    return ('train_losses',)

  def probabilities(self, situation: choosing.Situation) -> np.ndarray:
    """Returns p_i for each available client."""
    if self.by == 'norms':
      values = situation.norms[situation.available]
    else:
      values = situation.train_losses[situation.available]
    is_known = np.isfinite(values) & (values >= 0)
    typical = 1.0
    if is_known.any():
      typical = values[is_known].mean()
    values = situation.shares(self.objective) * np.where(is_known, values, typical)
    total = values.sum()
    uniform = situation.shares('uniform')
    if not total > 0:
      return uniform
    mixed: np.ndarray = (1 - self.mix) * values / total + self.mix * uniform
    return mixed


@dataclasses.dataclass(frozen=True)
class PowerOfChoice:
  """Of d candidates the m with the highest losses at the present model are chosen.

  "Towards Understanding Biased Client Selection in Federated Learning" (Cho et al., AISTATS 2022).
  The candidates are drawn without replacement, with probabilities as their numbers of examples.
  The paper then takes the plain mean of the models: `client_weighting='uniform'`.

  Attributes:
    candidates: d, at least m; 0 for 2 m. Where fewer clients are available it is their number.
  """

  needs: ClassVar[tuple[str, ...]] = ('losses',)
  candidates: int = hyperparameters.option(
    0, 'd, the clients whose losses are compared; 0 for twice the cohort', validation.whole
  )

  def check_size(self, size: int) -> None:
    """Raises ValueError if a cohort has more clients than there are candidates."""
    if 0 < self.candidates < size:
      raise ValueError(
        f'candidates is {self.candidates}, but {size} clients are chosen in a round: give {size} or'
        f' more, such as {2 * size}.'
      )

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    self.check_size(situation.size)
    shares = situation.shares('examples')
    wanted = self.candidates or 2 * situation.size
    count = min(wanted, int(np.count_nonzero(shares)))
    drawn = situation.generator().choice(len(shares), size=count, replace=False, p=shares)
    positions = situation.available[drawn]
    losses = np.nan_to_num(situation.losses(positions), nan=-math.inf, posinf=math.inf)
    highest = np.argsort(-losses, kind='stable')[: situation.size]
    return choosing.Choice(positions[highest])


@dataclasses.dataclass(frozen=True)
class Cyclic:
  """Clients take part in the order of their ids, round after round.

  "On the Convergence of Federated Averaging with Cyclic Client Participation" (Cho et al., ICML
  2023). A client that is not available is passed over.
  """

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    # Not by `size`: where few are available in one round, the turn would jump in all later ones.
    start = (situation.round_number - 1) * situation.size_in_turn % len(situation.client_ids)
    first = np.searchsorted(situation.available, start)
    in_turn = np.roll(situation.available, -first)
    return choosing.Choice(in_turn[: situation.size])


@dataclasses.dataclass(frozen=True)
class Shuffled:
  """In each pass over the clients every client takes part once, in a new random order: FedRR.

  "Federated Optimization Algorithms with Random Reshuffling and Gradient Compression" (Sadiev et
  al., 2022); "Federated Learning with Regularized Client Participation" (Malinovsky et al., 2023).
  The last cohort of a pass has the clients that are left, and may be smaller. A client that is not
  available in its round is left out until the next pass.
  """

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    num_clients = len(situation.client_ids)
    size = situation.size_in_turn
    rounds_of_pass = -(-num_clients // size)
    number, turn = divmod(situation.round_number - 1, rounds_of_pass)
    generator = draws.generator(situation.seed, number + 1, draws.COHORT)
    order = generator.permutation(num_clients)
    cohort = order[turn * size : (turn + 1) * size]
    present = cohort[np.isin(cohort, situation.available)]
    if not len(present):  # Somebody must take part.
      present = situation.available[:1]
    return choosing.Choice(present)


@dataclasses.dataclass(frozen=True)
class Stratified:
  """Each group of clients has its part of the cohort, as its number of available clients.

  Whole parts are given to each group; what is left is drawn so that every client has the same
  chance. The mean is therefore as unbiased as with uniform draws, and varies less if the clients of
  a group are alike.

  Attributes:
    strata: Number of groups of clients of similar size, if `groups` is None.
    groups: The name of each client's group by client id. None groups clients by their sizes.
  """

  strata: int = hyperparameters.option(
    4, 'Number of groups of clients with similar numbers of examples', validation.count
  )
  groups: Mapping[str, str] | None = None

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    owners = self._owners(situation)[situation.available]
    generator = situation.generator()
    names, counts = np.unique(owners, return_counts=True)
    exact = counts * situation.size / counts.sum()
    quotas = np.floor(exact + 1e-9).astype(np.int64)
    # Systematic rounding: a group gets one more with the probability of its remainder.
    steps = np.cumsum(exact - quotas) + generator.random()
    quotas += np.diff(np.floor(np.concatenate([[steps[0] - (exact - quotas)[0]], steps]))) > 0
    drawn = []
    for name, quota in zip(names, quotas):
      (members,) = np.nonzero(owners == name)
      drawn.append(generator.choice(members, size=min(quota, len(members)), replace=False))
    positions = situation.available[np.concatenate(drawn)]
    return choosing.Choice(positions[: situation.size])

  def _owners(self, situation: choosing.Situation) -> np.ndarray:
    """Returns the number of each client's group, [N]."""
    if self.groups is None:
      ranks = np.argsort(np.argsort(situation.num_examples, kind='stable'))
      return ranks * self.strata // len(ranks)
    missing = [i for i in situation.client_ids if i not in self.groups]
    if missing:
      raise ValueError(
        f'{len(missing)} clients have no group, {missing[0]!r} among them: give one for each.'
      )
    _, numbers = np.unique([self.groups[i] for i in situation.client_ids], return_inverse=True)
    return numbers


COHORTS: Mapping[str, type] = MappingProxyType(
  {
    'uniform': Uniform,
    'replacement': Replacement,
    'by_size': BySize,
    'importance': Importance,
    'power_of_choice': PowerOfChoice,
    'oort': oort.Oort,
    'cyclic': Cyclic,
    'shuffled': Shuffled,
    'stratified': Stratified,
  }
)


def build_cohort(name: str, values: Mapping[str, Any] | None = None) -> choosing.Rule:
  """Returns a built-in rule.

  Args:
    name: A name in `COHORTS`.
    values: Options of the rule by name; those left out have their defaults.

  Raises:
    TypeError: If a value has the wrong type.
    ValueError: If there is no such rule or option, or a value is out of its range.
  """
  if name not in COHORTS:
    raise ValueError(suggestions.unknown('cohort', name, COHORTS))
  kind = COHORTS[name]
  declared = {h.name: h for h in options_of(name)}
  checked = {}
  for option, value in (values or {}).items():
    if option not in declared:
      raise ValueError(suggestions.unknown(f'option of {name}', option, declared))
    checked[option] = declared[option].checked(value)
  rule: choosing.Rule = kind(**checked)
  return rule


@functools.cache
def options_of(name: str) -> tuple[hyperparameters.Hyperparameter, ...]:
  """Returns the options of a built-in rule."""
  return hyperparameters.declared_by(COHORTS[name])
