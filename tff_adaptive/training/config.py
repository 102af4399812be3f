"""The configuration of a training run."""

import dataclasses
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tff_adaptive import costs
from tff_adaptive._utils import validation, value_text
from tff_adaptive.asynchrony.settings import Buffered
from tff_adaptive.population import attacks, choosing, rounds as population_rounds
from tff_adaptive.runs import config as config_file

# For a budget of a run, the columns of metrics.csv whose sum it limits.
BUDGETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
  {
    'max_megabytes': ('megabytes_down', 'megabytes_up'),
    'max_gradients': ('gradients',),
    'max_virtual_seconds': ('virtual_seconds',),
  }
)


def _whole(default: Any, least: int, hint: str, *, changes_numbers: bool = True) -> Any:
  """Declares a dataclass field for an integer that is at least `least`."""

  def check(name: str, value: Any, hint: str) -> int:
    validation.whole_number(name, value, least, hint)
    return int(value)  # JSON cannot write NumPy's integers.

  return _field(default, check, hint, changes_numbers)


def _field(default: Any, check: Any = None, hint: str = '', changes_numbers: bool = False) -> Any:
  """Declares a dataclass field with a check. None is not checked if it is the default."""
  metadata = {'check': check, 'hint': hint, 'changes_numbers': changes_numbers}
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
  """The settings of a run: its length, its clients, and how often it evaluates and saves.

  Attributes:
    rounds: Number of rounds of the whole run, >= 1. Round 0 is the initial model.
    clients_per_round: Number of clients chosen in each round, >= 1.
    cohort: The rule that chooses the clients of a round, such as `population.PowerOfChoice()`, or a
      function of a `population.Situation`. None draws them uniformly without replacement. A rule
      that gives weights needs a process built with `ClientTraining(cohort_weights=True)` and
      `client_weighting='uniform'`.
    attackers: Clients that attack, for experiments. An attack on updates needs a process built with
      `ClientTraining(attack=attackers.of_updates)`, and 'inner_product' one whose aggregator is an
      `aggregation.InnerProductFactory`. None for no attack.
    seed: The seed by which clients are drawn and the population is simulated, >= 0.
    max_examples_per_client: At most this number of a client's first examples is used; None for all.
    rounds_per_evaluation: The number of rounds between evaluations, >= 1. Round 0 and the last
      round are evaluated too.
    virtual_seconds_per_evaluation: If given, it replaces `rounds_per_evaluation`: the model is
      evaluated after the first round that ends at or after each multiple of this number of virtual
      seconds, above 0. It needs a `population`.
    rounds_per_checkpoint: Number of rounds between checkpoints, >= 1. The last round is saved too.
    metric: The name of the model's metric that the progress display shows and `target` refers to.
    cost_model: If given, metrics.csv and summary.json report the costs of rounds.
    population: If given, it determines availability, speed and failures of clients, and each
      round's virtual time is reported. It needs a `cost_model`. With None every drawn client
      finishes.
    asynchrony: If given, training is asynchronous: the server does not wait for all clients, a
      round is a server step, and `clients_per_round` is the size of the server's buffer. It needs a
      `population`, and a process that was built with the same `asynchrony`. config.json records it
      as `synchrony`, after the flag of the command line.
    target: If given, summary.json says when `metric` on validation data first was as good as this.
    stop_at_target: Whether the run ends with the evaluation in which the global model, or the one
      for inference, reaches the target. The run is then complete.
    early_stop: A metric such as 'loss', or a column of metrics.csv such as 'validation_loss'. The
      run ends, and is complete, if the evaluated values have not become better for `patience`
      evaluations. A metric stands for the model for inference if there is one. High values are
      good, except for losses and errors.
    patience: Number of these evaluations, >= 1.
    min_delta: By how much a value has to be better than the best before, >= 0.
    keep_best: Whether the weights of the best evaluation are kept, by `early_stop` or else by
      `metric`: in `TrainingResult.best_weights`, and in checkpoints/best.npz.
    ledger: Whether the run's folder gets a ledger, a row for each client and round; see
      `runs.ledger`. What a process measures of clients is in it: norms of updates, losses and
      divergence (`ClientTraining.measures`), cosines to the aggregate (`ClientNormsFactory` of
      `aggregation`). So are the losses that the rule of `cohort` needs.
    trace_client: The id of a client whose local steps are written to the run's folder `trace` (see
      `runs.ledger`), for processes of this package with a `models.Model`. Whenever it takes part it
      trains once more for that. None for no client.
    max_megabytes: A budget: the run ends, and is complete, after the round in which the clients
      have received and sent this number of megabytes in all. It needs a `cost_model`.
    max_gradients: The same for the number of batch gradients. It needs a `cost_model`.
    max_virtual_seconds: The same for virtual seconds. It needs a `population`.
  """

  rounds: int = _whole(dataclasses.MISSING, 1, 'give 100, say')
  clients_per_round: int = _whole(dataclasses.MISSING, 1, 'give 10, say')
  seed: int = _whole(0, 0, 'give 0, say')
  max_examples_per_client: int | None = _whole(None, 1, 'give 128, say, or None')
  rounds_per_evaluation: int = _whole(10, 1, 'give 10, say', changes_numbers=False)
  virtual_seconds_per_evaluation: float | None = _field(
    None, validation.above_zero, 'give 60, say, or None'
  )
  rounds_per_checkpoint: int = _whole(50, 1, 'give 50, say', changes_numbers=False)
  metric: str = _field('accuracy')
  cost_model: costs.CostModel | None = None
  population: population_rounds.Population | None = None
  asynchrony: Buffered | None = None
  target: float | None = _field(
    None, lambda *given: float(validation.real(*given)), 'give 0.9, say, or None'
  )
  stop_at_target: bool = _field(False)
  early_stop: str | None = _field(None)
  patience: int = _whole(10, 1, 'give 10 evaluations, say', changes_numbers=False)
  min_delta: float = _field(0.0, validation.at_least_zero, 'give 0, say')
  keep_best: bool = _field(False)
  ledger: bool = _field(False)
  trace_client: str | None = _field(None)
  max_megabytes: float | None = _field(None, validation.above_zero, 'give 1000, say, or None')
  max_gradients: float | None = _field(None, validation.above_zero, 'give 100000, say, or None')
  max_virtual_seconds: float | None = _field(None, validation.above_zero, 'give 3600, say, or None')
  cohort: choosing.Rule | None = None
  attackers: attacks.Attackers | None = None

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      is_left_out = field.default is None and getattr(self, field.name) is None
      if field.metadata.get('check') is not None and not is_left_out:
        validation.field(self, field.name, field.metadata['check'], field.metadata['hint'])
    if self.stop_at_target and self.target is None:
      raise ValueError('stop_at_target is given without a target: give one, such as 0.9.')
    if self.asynchrony is not None and self.population is None:
      raise ValueError(
        'asynchrony is given without a population, which says how long clients take: give '
        'population.Population(), say.'
      )
    if self.virtual_seconds_per_evaluation is not None and self.population is None:
      raise ValueError(
        'virtual_seconds_per_evaluation is given without a population, which has the clock: give'
        " rounds_per_evaluation instead, or a population (availability='always', say)."
      )
    if self.population is not None and self.cost_model is None:
      raise ValueError(
        'population is given without a cost_model, which says how many steps and bytes a client'
        ' needs: give one.'
      )

    self._check_budgets()
    if self.cohort is not None:
      self._check_cohort(self.cohort)

  def _check_budgets(self) -> None:
    """Raises ValueError for a budget whose costs nothing counts."""
    for name in ('max_megabytes', 'max_gradients'):
      if getattr(self, name) is not None and self.cost_model is None:
        raise ValueError(
          f'{name} is given without a cost_model, which counts the costs: give one, or None.'
        )
    if self.max_virtual_seconds is not None and self.population is None:
      raise ValueError(
        'max_virtual_seconds is given without a population, which has the clock: give one'
        " (availability='always', say), or None."
      )

  def _check_cohort(self, cohort: choosing.Rule) -> None:
    """Raises TypeError or ValueError for a rule that cannot choose the clients of this run."""
    if not callable(cohort):
      raise TypeError(
        f'cohort is {value_text.in_text(cohort):.80}; give a function of a population.Situation,'
        ' such as population.PowerOfChoice().'
      )
    needs = choosing.needs_of(cohort)
    model = self.cost_model
    if 'losses' in needs and model is not None and model.counts.down_whole is not None:
      raise ValueError(
        f"cohort is {choosing.name_of(cohort)}, whose candidates evaluate the server's model, but"
        ' the server sends compressed changes, from which clients have another one: leave out one'
        ' of the two.'
      )
    size = self.clients_per_round
    if self.population is not None:
      size = self.population.cohort_to_draw(size)
    choosing.check_size(cohort, size)
    if self.asynchrony is not None:
      raise ValueError(
        f'cohort is {choosing.name_of(cohort)}, but asynchronous training draws the clients that'
        ' begin one by one: leave out one of the two.'
      )

  @property
  def weighs_cohorts(self) -> bool:
    """Returns whether clients' data have a weight, by which their updates are multiplied."""
    return choosing.gives_weights(self.cohort)

  @property
  def attack_on_updates(self) -> str | None:
    """Returns the attack on updates, for which clients' data have an entry; None for none."""
    return None if self.attackers is None else self.attackers.of_updates

  @property
  def limits_steps(self) -> bool:
    """Returns whether clients' data have a maximum number of local steps."""
    return self.population is not None and self.population.limits_steps

  def record(self, settings: Mapping[str, Any] | None = None) -> config_file.Record:
    """Returns the settings that config.json records: those of this object and `settings`.

    Args:
      settings: Further settings of the run: name -> number, string, bool or list.

    Raises:
      ValueError: If a setting cannot be recorded, or has the name of a field of this class.
    """
    fields = dataclasses.fields(self)
    recorded = {field.name: getattr(self, field.name) for field in fields}
    # The flag's name, by which reports group runs and earlier runs are resumed.
    recorded['synchrony'] = recorded.pop('asynchrony')
    given = {name: _as_json(name, value) for name, value in (settings or {}).items()}
    for name in given:
      if name in recorded:
        raise ValueError(f'settings has {name!r}, which `config` says already: leave it out.')
    # The metric has a field of its own; a cost model that only counts changes no run.
    del recorded['metric'], recorded['cost_model']
    for name in ('cohort', 'attackers'):
      recorded[name] = population_rounds.record(getattr(self, name))
    if self.population is not None:
      recorded['population'] = self.population.record()
    if self.asynchrony is not None:
      recorded['synchrony'] = self.asynchrony.record()
    if self.population is not None and self.cost_model is not None:
      # It determines which clients finish in time. Without a population it only counts costs.
      model = dataclasses.asdict(self.cost_model)
      recorded['cost_model'] = json.loads(json.dumps(model, default=int))  # NumPy's integers.
    harmless = {field.name for field in fields if not field.metadata.get('changes_numbers', True)}
    return config_file.Record({**recorded, **given}, harmless & set(recorded), metric=self.metric)


def _as_json(name: str, value: Any) -> Any:
  try:
    return json.loads(json.dumps(value))
  except (TypeError, ValueError):
    raise ValueError(
      f'settings[{name!r}] is {value_text.in_text(value):.80}; give numbers, strings, bools or'
      ' lists of them.'
    ) from None
