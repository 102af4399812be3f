"""The settings of a training run, in groups from which the flags are made.

Each field of a group is a flag of scripts/train.py. The flags of hyperparameters come from
`tff_adaptive.registry`. Nothing here imports TensorFlow. `resolve.resolve` returns a `Settings`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
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

  def groups(self) -> Iterator[fields.Group]:
    """Returns the groups in the order of --help."""
    return (getattr(self, name) for name in GROUPS)

  def flat(self) -> dict[str, Any]:
    """Returns values by flag name, for config.json. A flag without a meaning has None."""
    values: dict[str, Any] = {}
    for group in self.groups():
      for name, value in vars(group).items():
        values[name] = list(value) if isinstance(value, tuple) else value
    values.update(dict.fromkeys(hyperparameters.named()))
    for entry, chosen in (
      (self.what.algorithm_entry, self.correction),
      (self.what.server_entry, self.server),
    ):
      if not entry.takes_options:  # Others have them in ..._option.
        values.update(chosen)
    return values

  def sources(self) -> dict[str, Any]:
    """Loads the user's own files. Returns their origins by the flags that name them."""
    sources: dict[str, Any] = {}
    for group in self.groups():
      sources.update(group.sources())
    return sources

  @property
  def most_clients(self) -> int:
    """The number of clients in a round, or an upper bound if the task's number is unknown."""
    known = catalog.num_clients(self.what.known_task, self.what.task_options)
    return self.training.cohort(known or fields.INT31)

  def client_training(self, task: Any, epochs: int | None = None) -> Any:
    """Returns the `client.ClientTraining` of a round, or of `epochs` epochs of fine-tuning."""
    from tff_adaptive import algorithms, client

    own = self.training
    attackers = self.attack.build()
    optimizer = algorithms.build_client_optimizer(self.what.client_entry, self.what.client_values)
    batching = client.Batching(
      own.batch_size or None,
      epochs or own.client_epochs or 1,
      fill_last=own.fill_last_batch,
      unit_starts=task.unit_starts,
      step_limits=self.population.stragglers == 'partial',
      local_steps=None if epochs else own.local_steps,
      random_local_steps=bool(own.random_local_steps) and not epochs,
      with_replacement=bool(own.with_replacement),
      continue_batches=bool(own.continue_batches) and not epochs,
    )
    return client.ClientTraining(
      optimizer=optimizer,
      batching=batching,
      optimizer_state=self.what.client_optimizer_state,
      seed=self.what.seed,
      xla=bool(self.runtime.xla),
      cohort_weights=choosing.gives_weights(self.cohort.build(self)) and not epochs,
      attack=None if attackers is None or epochs else attackers.of_updates,
    )

  def more_parts(self) -> list[Any]:
    """Returns the parts of the algorithm's chain that flags of every algorithm add."""
    from tff_adaptive import algorithms

    return algorithms.regularization(
      self.what.sam_rho, self.clients.clip_norm, self.clients.weight_decay
    )


GROUPS: Mapping[str, type[fields.Group]] = {
  f.name: f.type
  for f in dataclasses.fields(Settings)
  if isinstance(f.type, type) and issubclass(f.type, fields.Group)
}
_OF_GROUPS = [(g, f) for g in GROUPS.values() for f in dataclasses.fields(g)]  # type: ignore[arg-type]
FIELDS = tuple(field for _, field in _OF_GROUPS)
CHANGE_NO_NUMBER = tuple(
  f.name for g, f in _OF_GROUPS if not (g.CHANGES_NUMBERS and f.metadata['changes_numbers'])
)
