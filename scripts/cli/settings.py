"""The settings of a training run, in groups from which the flags are made.

Each field of a group is a flag of scripts/train.py. The flags of hyperparameters come from
`tff_adaptive.registry`. Nothing here imports TensorFlow. `resolve.resolve` returns a `Settings`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tff_adaptive.population import choosing
from tff_adaptive_tasks import catalog

from . import fields, hyperparameters
from .groups import (
  aggregation,
  attack as attack_lib,
  cohort as cohort_lib,
  evaluation,
  output,
  population,
  runtime,
  synchrony,
  training as local_training,
  what,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The checked settings of a run, defaults included: groups, hyperparameters and given flags.

  Attributes:
    correction: The hyperparameters of the correction by name.
    server: The hyperparameters of the server optimizer by name.
    given: The values that the user gave by flag name, enough to repeat the command.
    task_object: The task itself, if a program gave it and not its name.
    writes: Whether the run has a folder; a run of a program may have none.
  """

  what: what.What
  training: local_training.Training
  rates: local_training.Rates
  clients: local_training.Clients
  cohort: cohort_lib.Cohort
  attack: attack_lib.Attack
  population: population.Population
  synchrony: synchrony.Synchrony
  aggregation: aggregation.Aggregation
  evaluation: evaluation.ClientEvaluation
  runtime: runtime.Runtime
  output: output.Output
  correction: Mapping[str, Any]
  server: Mapping[str, Any]
  given: Mapping[str, Any] = dataclasses.field(compare=False)
  task_object: Any = dataclasses.field(default=None, compare=False)
  writes: bool = dataclasses.field(default=True, compare=False)

  def groups(self) -> Iterator[fields.Group]:
    """Returns the groups in the order of --help."""
    return (getattr(self, name) for name in GROUPS)

  def flat(self) -> dict[str, Any]:
    """Returns values by flag name, for config.json. A flag without a meaning has None."""
    values: dict[str, Any] = {}
    for group in self.groups():
      values.update(vars(group))
    for name, value in values.items():
      if isinstance(value, tuple):
        values[name] = list(value)
    values.update(dict.fromkeys(hyperparameters.named()))
    # What takes options has its hyperparameters in the flag ..._option.
    if not self.what.algorithm_entry.takes_options:
      values.update(self.correction)
    if not self.what.server_entry.takes_options:
      values.update(self.server)
    return values

  def sources(self) -> dict[str, Any]:
    """Loads the user's own files. Returns their origins by the flags that name them."""
    sources: dict[str, Any] = {}
    for group in self.groups():
      sources.update(group.sources())
    return sources

  def given_as(self, key: str) -> str:
    """Returns the flag and value, --FLAG=VALUE, that name a file; `key` is one of `sources`."""
    if key in self.what.sources():
      return self.what.given_as(key)
    return f'--{key}={self.flat()[key]}'

  @property
  def known_task(self) -> str:
    """The task's name in the catalogue; '' for a user's own task, and for a task object."""
    if self.task_object is not None:
      return ''
    return self.what.known_task

  @property
  def folder(self) -> str | None:
    """The run's folder; None if nothing is written."""
    if not self.writes:
      return None
    return self.output.output_dir

  @property
  def most_clients(self) -> int:
    """The number of clients in a round, or an upper bound if the task's number is unknown."""
    num_clients = catalog.num_clients(self.known_task, self.what.task_options)
    return self.training.cohort(num_clients or fields.INT31)

  @property
  def compiled_option(self) -> str:
    """The option NAME=VALUE of the task that makes its model a compiled one; '' for none."""
    return catalog.compiled_option(self.known_task, self.what.task_options)

  def client_training(self, task: Any, epochs: int | None = None) -> Any:
    """Returns the `client.ClientTraining` of a round, or of `epochs` epochs of fine-tuning."""
    from tff_adaptive import algorithms, client

    flags = self.training
    optimizer = algorithms.build_client_optimizer(self.what.client_entry, self.what.client_values)
    batching = client.Batching(
      flags.batch_size or None,
      flags.client_epochs or 1,
      fill_last=flags.fill_last_batch,
      unit_starts=task.unit_starts,
      step_limits=self.population.stragglers == 'partial',
      local_steps=flags.local_steps,
      random_local_steps=bool(flags.random_local_steps),
      with_replacement=bool(flags.with_replacement),
      continue_batches=bool(flags.continue_batches),
    )
    if epochs is not None:
      batching = dataclasses.replace(
        batching, epochs=epochs, local_steps=None, random_local_steps=False, continue_batches=False
      )
    rule = self.cohort.build(self.clients.client_weighting)
    attackers = self.attack.build()
    attack = None
    if attackers is not None and epochs is None:
      attack = attackers.of_updates
    measures = None
    if self.output.ledger and epochs is None and not self.aggregation.entry.hides_clients:
      measures = 'full' if self.output.full_ledger else 'basic'
    return client.ClientTraining(
      optimizer=optimizer,
      batching=batching,
      optimizer_state=self.what.client_optimizer_state,
      seed=self.what.seed,
      xla=bool(self.runtime.xla),
      cohort_weights=choosing.gives_weights(rule) and epochs is None,
      attack=attack,
      measures=measures,
    )

  def more_parts(self) -> list[Any]:
    """Returns the parts of the algorithm's chain that flags of every algorithm add."""
    from tff_adaptive import algorithms

    return algorithms.regularization(
      self.what.sam_rho, self.clients.clip_norm, self.clients.weight_decay
    )


# `field.type` is the class itself only while this module does not postpone its annotations.
GROUPS: Mapping[str, type[fields.Group]] = {
  field.name: field.type
  for field in dataclasses.fields(Settings)
  if isinstance(field.type, type) and issubclass(field.type, fields.Group)
}


def _fields(of: Callable[[type[fields.Group], dataclasses.Field], bool]) -> list[dataclasses.Field]:
  """Returns the fields of all groups for which `of` returns True."""
  selected: list[dataclasses.Field] = []
  for group in GROUPS.values():
    selected += [field for field in dataclasses.fields(group) if of(group, field)]  # type: ignore[arg-type]
  return selected


def _changes_no_number(group: type[fields.Group], field: dataclasses.Field) -> bool:
  return not (group.CHANGES_NUMBERS and field.metadata['changes_numbers'])


FIELDS = tuple(_fields(lambda group, field: True))
CHANGE_NO_NUMBER = tuple(field.name for field in _fields(_changes_no_number))
