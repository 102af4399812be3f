"""The settings of a client's training, which hold for every algorithm."""

import dataclasses
from collections.abc import Sequence

import tensorflow_federated as tff

from tff_adaptive._utils import validation
from tff_adaptive._utils.weight_groups import NamedWeight
from tff_adaptive.client import batching as batching_lib
from tff_adaptive.optimizers import per_coordinate

OPTIMIZER_STATES = ('reset', 'keep', 'average')
_SGD = tff.learning.optimizers.build_sgdm()


@dataclasses.dataclass(frozen=True)
class ClientTraining:
  """The settings of a client's training in a round.

  What changes gradients or updates is a part of the algorithm instead: sharpness-aware minimization
  (`corrections.Sam`), clipping (`corrections.Clip`) and weight decay (`corrections.WeightDecay`).

  Attributes:
    optimizer: The client optimizer. None means that of the algorithm, such as DiLoCo's AdamW, or
      else SGD, which the corrections' formulas assume. `client_learning_rate` replaces its own rate
      in each round.
    optimizer_state: What happens to the optimizer's state (moments, step counters) after a round.
      With 'reset' it begins anew in each round. With 'keep' each client keeps it, as in DiLoCo.
      With 'average' the server averages the cohort's states, with the weights of the updates, and
      sends the mean to the next cohort. None means what the algorithm says, or else 'reset'.
    batching: How clients given as arrays (`client_arrays`) form batches. None means TFF's
      convention: each element of a client's dataset is one batch and one step.
    seed: Seed of shuffling and dropout, from 0 to 2^62 - 1.
    xla: Whether XLA compiles the local step, for GPUs. The model must be a `models.Model`.
    cohort_weights: Whether clients' data have the entry `cohort_weight`, float32, by which the
      update is multiplied: for rules that choose clients with weights. It needs `batching`. What
      a client sends besides its update is not multiplied.
    attack: What clients whose data have an entry `attack` above 0 do with their updates, one of
      `population.attacks.OF_UPDATES`; the entry, float32, is then in all clients' data, and is 0
      for honest ones. It needs `batching`. None for no attack.
    measures: What the process measures of each client besides, for a ledger: the metric
      `clients` of its `client_work`, float32 [m, c] with the columns `entries.MEASURES`. 'basic',
      with the norms of the updates, takes next to no time. 'full' also has the losses before and
      after training and the norm of the gradient, on all of a client's examples, which takes three
      more passes over them. None for nothing.

  Raises:
    ValueError: If a number is out of its range.
    TypeError: If an argument has the wrong type.
  """

  optimizer: tff.learning.optimizers.Optimizer | None = None
  batching: batching_lib.Batching | None = None
  optimizer_state: str | None = None
  seed: int = 0
  xla: bool = False
  cohort_weights: bool = False
  attack: str | None = None
  measures: str | None = None

  def __post_init__(self) -> None:
    hint = 'give tff_adaptive.optimizers.build_sgdm(0.1), say, or leave it out for SGD'
    if self.optimizer is not None:
      validation.instance('optimizer', self.optimizer, tff.learning.optimizers.Optimizer, hint)
    if self.batching is not None:
      hint = 'give tff_adaptive.Batching(20), say, or None for datasets of batches'
      validation.instance('batching', self.batching, batching_lib.Batching, hint)
    if self.optimizer_state not in (None, *OPTIMIZER_STATES):
      raise ValueError(
        f'optimizer_state must be one of {", ".join(OPTIMIZER_STATES)}, found '
        f'{self.optimizer_state!r}'
      )
    if self.cohort_weights and self.batching is None:
      raise ValueError(
        'cohort_weights need clients that are given as whole arrays: give'
        ' batching=tff_adaptive.Batching(20), say.'
      )
    if self.attack is not None and self.batching is None:
      raise ValueError(
        'attack needs clients that are given as whole arrays: give'
        ' batching=tff_adaptive.Batching(20), say.'
      )
    if self.measures not in (None, 'basic', 'full'):
      raise ValueError(f"measures must be 'basic', 'full' or None, found {self.measures!r}")
    # 62 bits: what `seeds.base` holds.
    validation.whole_number('seed', self.seed, 0, 'give a seed such as 0', high=2**62 - 1)

  def resolved(self, weights: Sequence[NamedWeight] = ()) -> 'ClientTraining':
    """Returns the settings with SGD for no optimizer, and 'reset' for no optimizer state.

    Args:
      weights: The model's weights, which an optimizer may treat by name; () where the settings
        have got them already.
    """
    optimizer = _SGD if self.optimizer is None else self.optimizer
    if weights and isinstance(optimizer, per_coordinate.PerCoordinate):
      optimizer = optimizer.for_weights(weights)
    state = self.optimizer_state or 'reset'
    return dataclasses.replace(self, optimizer=optimizer, optimizer_state=state)
