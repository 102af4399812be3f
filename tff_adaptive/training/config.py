"""What a run is asked to do."""

import dataclasses
import os

from tff_adaptive import costs
from tff_adaptive.population import rounds as population_rounds
from tff_adaptive.training import capacity

STATE_FILE = 'state.sqlite'


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

  def __post_init__(self) -> None:
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
      self.client_state_dir or os.path.join(output_dir, 'checkpoints'), STATE_FILE
    )
