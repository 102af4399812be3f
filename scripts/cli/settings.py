"""What a training run is asked to do: groups of settings, from which the flags are made.

Each field of a group is a flag of scripts/train.py; hyperparameters are flags by their entries in
`tff_adaptive.registry`. Nothing here imports TensorFlow. `resolve.resolve` makes a `Settings`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tff_adaptive._utils import user_code

from . import fields, hyperparameters
from .groups import (
  aggregation,
  evaluation,
  output,
  population,
  runtime,
  training as local_training,
  what,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The settings of a run, resolved and checked: groups, hyperparameters, and what the user gave.

  Attributes:
    correction: The correction's hyperparameters, by name.
    server: The server optimizer's, by name.
    given: What the user gave, by flag name: what a command line needs to say.
  """

  what: what.What
  training: local_training.Training
  rates: local_training.Rates
  clients: local_training.Clients
  population: population.Population
  aggregation: aggregation.Aggregation
  evaluation: evaluation.ClientEvaluation
  runtime: runtime.Runtime
  output: output.Output
  correction: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  server: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

  def groups(self) -> Iterator[fields.Group]:
    """The groups, in the order of --help."""
    return (getattr(self, name) for name in GROUPS)

  def flat(self) -> dict[str, Any]:
    """Flag name -> value, as config.json records it; None where a flag has no meaning."""
    values: dict[str, Any] = {}
    for group in self.groups():
      for name, value in vars(group).items():
        values[name] = list(value) if isinstance(value, tuple) else value
    values.update(dict.fromkeys(hyperparameters.named()))
    for spec, chosen in (
      (self.what.algorithm, self.correction),
      (self.what.server_optimizer, self.server),
    ):
      if not user_code.is_reference(spec):  # Those of a user's own are in ..._option.
        values.update(chosen)
    return values

  def files(self) -> dict[str, dict[str, str]]:
    """The user's own files by what they are for: path and sha256, as config.json records them."""
    own = {name: source.record() for name, source in self.what.sources().items()}
    return {**own, **self.population.files()}

  def client_training(self, task: Any, epochs: int | None = None) -> Any:
    """Returns how a client trains, a `client.ClientTraining`; by default for a round's epochs."""
    from tff_adaptive import client

    batching = client.Batching(
      self.training.batch_size or None,
      epochs or self.training.client_epochs,
      fill_last=self.training.fill_last_batch,
      unit_starts=task.unit_starts,
      step_limits=self.population.stragglers == 'partial',
      shuffle_buffer=self.training.shuffle_buffer,
    )
    return client.ClientTraining(
      batching=batching,
      weight_decay=self.clients.weight_decay,
      clip_norm=self.clients.clip_norm,
      seed=self.what.seed,
      xla=bool(self.runtime.xla),
    )


GROUPS: Mapping[str, type[fields.Group]] = {
  f.name: f.type
  for f in dataclasses.fields(Settings)
  if isinstance(f.type, type) and issubclass(f.type, fields.Group)
}
FIELDS = tuple(f for group in GROUPS.values() for f in dataclasses.fields(group))  # type: ignore[arg-type]
CHANGE_NO_NUMBER = tuple(f.name for f in FIELDS if not f.metadata['changes_numbers'])


def check(name: str, value: Any) -> None:
  """Refuses a value that a flag does not take; ValueError, in one line."""
  fields.check(next(f for f in FIELDS if f.name == name), value)
