"""What a run is asked to do."""

import dataclasses
import os
from typing import Any

from tff_adaptive import costs
from tff_adaptive._utils import validation
from tff_adaptive.population import rounds as population_rounds
from tff_adaptive.runs import capacity, state_file

# Field -> what to give if it is no whole number.
_WHOLE_NUMBERS = {
  'rounds': 'give 100, say',
  'clients_per_round': 'give 10, say',
  'seed': 'give 0, say',
  'max_examples_per_client': 'give 128, say, or None for all',
  'rounds_per_evaluation': 'give 10, say',
  'rounds_per_checkpoint': 'give 50, say',
  'keep_checkpoints': 'give 2, say',
  'client_state_cache_bytes': 'give 2**30, say',
}


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
  """How long to train, on how many clients, and how often to look.

  Attributes:
    rounds: Rounds of the whole run, >= 1; round 0 is the initial model.
    clients_per_round: Clients drawn each round, uniformly and without replacement, >= 1.
    seed: Seeds the drawing, >= 0.
    max_examples_per_client: Only the first so many examples of a client are used; None: all.
    rounds_per_evaluation: The model is evaluated at round 0, every so many rounds, and at the
      end; >= 1.
    rounds_per_checkpoint: State is saved every so many rounds and at the end; >= 1.
    keep_checkpoints: The checkpoint file holds the last so many checkpoints, >= 1: the previous one
      is there if the latest is damaged.
    client_state_store: 'memory' or 'disk': where this process keeps a stateful algorithm's client
      states between checkpoints. 'shards': in files beside the checkpoint, which workers read and
      write themselves where they see the folder; what a run began with it goes on with.
    client_state_dir: The folder of the checkpoint file; None for `checkpoints` in the run's
      folder.
    client_state_cache_bytes: The most memory the disk store's cache takes.
    metric: The metric shown on the progress line.
    cost_model: If given, what a round costs is reported in metrics.csv and summary.json.
    population: If given, clients come and go, take their time and fail as it says, and a round's
      virtual time is reported; it wants a `cost_model`. None: every client drawn finishes.
    target: If given, summary.json says when `metric` on the validation data first was so good.
  """

  rounds: int
  clients_per_round: int
  seed: int = 0
  max_examples_per_client: int | None = None
  rounds_per_evaluation: int = 10
  rounds_per_checkpoint: int = 50
  keep_checkpoints: int = 2
  client_state_store: str = 'memory'
  client_state_dir: str | None = None
  client_state_cache_bytes: int = 1 << 30
  metric: str = 'accuracy'
  cost_model: costs.CostModel | None = None
  population: population_rounds.Population | None = None
  target: float | None = None

  def __post_init__(self) -> None:
    for name, hint in _WHOLE_NUMBERS.items():
      if getattr(self, name) is not None or name != 'max_examples_per_client':
        validation.field(self, name, _as_int, hint)
    if self.target is not None:
      validation.field(self, 'target', _as_float, 'give 0.9, say, or None')
    for name in (
      'rounds',
      'clients_per_round',
      'rounds_per_evaluation',
      'rounds_per_checkpoint',
      'keep_checkpoints',
    ):
      if getattr(self, name) < 1:
        raise ValueError(f'{name} is {getattr(self, name)}; it must be at least 1.')
    if self.seed < 0:
      raise ValueError(f'seed is {self.seed}; it must be at least 0.')
    if self.max_examples_per_client is not None and self.max_examples_per_client < 1:
      raise ValueError(
        f'max_examples_per_client is {self.max_examples_per_client}; it must be at least 1, or'
        ' None for all.'
      )
    if self.client_state_store not in capacity.STORES:
      raise ValueError(
        f'client_state_store is {self.client_state_store!r}; it must be one of'
        f' {", ".join(capacity.STORES)}.'
      )
    if self.population is not None and self.cost_model is None:
      raise ValueError(
        'population is given without a cost_model, which says how many steps and bytes a client'
        ' needs: give one.'
      )

  def checkpoint_path(self, output_dir: str) -> str:
    """Returns the path of the checkpoint file of a run in `output_dir`."""
    return os.path.join(
      self.client_state_dir or os.path.join(output_dir, 'checkpoints'), state_file.STATE_FILE
    )


def _as_int(name: str, value: Any, hint: str) -> int:
  """A Python integer of a Python or NumPy one: JSON knows no other; its range is checked later."""
  validation.whole_number(name, value, -(2**63), hint)
  return int(value)


def _as_float(name: str, value: Any, hint: str) -> float:
  return float(validation.real(name, value, hint))
