"""Computes the costs of a round: bytes sent, local steps and gradients. Imports no TensorFlow.

`algorithms.counts` counts what a client receives, sends and computes. For published algorithms it
gives the published bytes ("AdaBest", Varno et al., 2022, appendix C.3), even if more are sent here.
"""

import dataclasses
from collections.abc import Sequence

from tff_adaptive import registry
from tff_adaptive._utils import validation

COLUMNS = ('megabytes_down', 'megabytes_up', 'local_steps', 'gradients')


@dataclasses.dataclass(frozen=True)
class CostModel:
  """The communication and computation of an algorithm on a model; `round` gives a round's costs.

  For SCAFFOLD/m and FedCM, the upload of client i counts as n numbers, as published. A server that
  sees each client's update g_i needs only g_i and K_i, the client's number of local steps. A server
  that sees only sums over the clients, as here, needs 2n numbers, as for SCAFFOLD: the sum of the
  g_i and the sum of g_i / (K_i eta_l), with the client rate eta_l. If the K_i differ, the second
  sum does not follow from the first. As published, AdaBest's numbers of examples are not counted.

  Attributes:
    counts: A client's communication and computation in a round, from `algorithms.counts`.
    num_parameters: n, the number of the model's parameters, >= 1.
    batch_size: B, the number of examples in a local step. None means all of a client's examples.
    epochs: E, the number of passes over a client's examples in a round.
    bytes_per_parameter: The size of a parameter, which is 4 for float32.
    fixed_steps: K, the number of local steps of every client that has examples, in place of E
      passes; see `Batching.local_steps`.
    rounds_between: The mean number of rounds from one participation of a client to its next, N / m
      if m of N clients are drawn; >= 1. It counts if the server sends changes of the model. A
      client then receives those of all these rounds, or the whole model if that is less. With
      other numbers of rounds a client receives less on average, because min is concave.
  """

  counts: registry.Counts
  num_parameters: int
  batch_size: int | None
  epochs: int = 1
  bytes_per_parameter: int = 4
  fixed_steps: int | None = None
  rounds_between: float = 1.0

  def __post_init__(self) -> None:
    validation.instance('counts', self.counts, registry.Counts, 'give algorithms.counts(...)')
    for name in ('num_parameters', 'batch_size', 'epochs', 'bytes_per_parameter', 'fixed_steps'):
      value = getattr(self, name)
      # None has a meaning for these two: all examples at once, and passes instead of steps.
      if value is not None or name not in ('batch_size', 'fixed_steps'):
        validation.count(name, value, 'give 1 or more')
    hint = 'give clients / clients_per_round'
    validation.field(self, 'rounds_between', validation.at_least_one, hint)

  @property
  def bytes_of_client(self) -> tuple[int, int]:
    """Returns the number of bytes that a client receives in a round, and the number it sends."""
    each = self.num_parameters * self.bytes_per_parameter
    down = self.counts.down
    if self.counts.down_whole is not None:
      down = min(self._down_with_changes, self.counts.down_whole)
    return round(down * each), round(self.counts.up * each)

  @property
  def sends_whole_model(self) -> bool:
    """Whether a server that sends changes sends no less than it would without them."""
    counts = self.counts
    return counts.down_whole is not None and self._down_with_changes >= counts.down_whole

  @property
  def _down_with_changes(self) -> float:
    """What a client receives with the changes of `rounds_between` rounds."""
    anew = self.counts.down_anew
    return self.rounds_between * (self.counts.down - anew) + anew

  def local_steps(self, num_examples: int) -> int:
    """Returns a client's number of local steps: `fixed_steps`, or all batches of all epochs."""
    if self.fixed_steps is not None and num_examples:
      return self.fixed_steps
    return self.epochs * self.batches(num_examples)

  def batches(self, num_examples: int) -> int:
    """Returns the number of batches of a client's examples."""
    if num_examples == 0:
      return 0
    if self.batch_size is None:
      return 1
    return -(-num_examples // self.batch_size)  # Rounded up: the last batch may be smaller.

  def round(
    self,
    client_examples: Sequence[int],
    client_steps: Sequence[int] | None = None,
    downloads: int | None = None,
  ) -> dict[str, float]:
    """Returns the costs of a round as columns of metrics.csv (`COLUMNS`); a megabyte is 10^6 bytes.

    The column `gradients` is the number of gradients of a batch's loss. A gradient over all of a
    client's examples counts as one for each batch of an epoch.

    Args:
      client_examples: The number of examples, n_i, on which each client of the cohort trains.
      client_steps: The number of local steps of each client. None if no client stops early.
      downloads: Number of clients that received the model, by default the size of the cohort.
    """
    bytes_down, bytes_up = self.bytes_of_client
    if client_steps is None:
      client_steps = [self.local_steps(k) for k in client_examples]
    cohort = len(client_examples)
    if downloads is None:
      downloads = cohort
    steps = sum(client_steps)
    # A full gradient goes once over all batches, however many epochs the client trains.
    passes = self.counts.full_gradients * sum(map(self.batches, client_examples))
    values = (
      downloads * bytes_down / 1e6,
      cohort * bytes_up / 1e6,
      steps,
      self.counts.gradients * steps + passes,
    )
    return dict(zip(COLUMNS, values))
