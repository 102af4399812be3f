"""The costs of a round: bytes sent, local steps and gradients. No TensorFlow.

`algorithms.counts` counts what an algorithm sends and computes. For the package's algorithms the
bytes are the published ones, for example of table 5 of "AdaBest" (Varno et al., 2022).
"""

import dataclasses
from collections.abc import Sequence

from tff_adaptive import registry
from tff_adaptive._utils import validation

COLUMNS = ('megabytes_down', 'megabytes_up', 'local_steps', 'gradients')


@dataclasses.dataclass(frozen=True)
class CostModel:
  """The costs of an algorithm on a model, for cohorts of any size.

  For SCAFFOLD/m and FedCM, n numbers are counted as sent up, as published. Here a client adds both
  g_i and the quotient g_i / (K_i eta_l) to sums, because with unequal K_i the mean of the quotients
  does not follow from the mean of the g_i. A server that sees each client's update needs only g_i
  and K_i. A server that sees only sums needs 2n numbers, like SCAFFOLD. As published, AdaBest's
  numbers of examples are not counted.

  Attributes:
    counts: A client's communication and computation, the result of `algorithms.counts`.
    num_parameters: n, the number of the model's parameters, >= 1.
    batch_size: B, the examples in a local step; None for all of a client's examples.
    epochs: E, the passes over a client's examples.
    bytes_per_parameter: 4 for float32.
    fixed_steps: K, the local steps of every client that has examples (`Batching.local_steps`), in
      place of E passes.
  """

  counts: registry.Counts
  num_parameters: int
  batch_size: int | None
  epochs: int = 1
  bytes_per_parameter: int = 4
  fixed_steps: int | None = None

  def __post_init__(self) -> None:
    validation.instance('counts', self.counts, registry.Counts, 'give algorithms.counts(...)')
    for name in ('num_parameters', 'batch_size', 'epochs', 'bytes_per_parameter', 'fixed_steps'):
      value = getattr(self, name)
      if value is not None or name not in ('batch_size', 'fixed_steps'):
        validation.count(name, value, 'give 1 or more')

  @property
  def bytes_of_client(self) -> tuple[int, int]:
    """Returns the bytes that a client receives and sends in a round."""
    each = self.num_parameters * self.bytes_per_parameter
    return round(self.counts.down * each), round(self.counts.up * each)

  def local_steps(self, num_examples: int) -> int:
    """Returns K_i, the local steps of a client with n_i examples: E ceil(n_i / B)."""
    if self.fixed_steps is not None and num_examples:
      return self.fixed_steps
    return self.epochs * self._batches(num_examples)

  def _batches(self, num_examples: int) -> int:
    return bool(num_examples) if self.batch_size is None else -(-num_examples // self.batch_size)

  def round(
    self,
    client_examples: Sequence[int],
    client_steps: Sequence[int] | None = None,
    downloads: int | None = None,
  ) -> dict[str, float]:
    """Returns the columns of metrics.csv for one round's costs; a megabyte is 10^6 bytes.

    `gradients` counts gradients of a batch's loss. A gradient over all of a client's examples
    counts as the batches of an epoch.

    Args:
      client_examples: n_i of each client of the cohort: the examples that it trains on.
      client_steps: K_i of each client, if clients may stop early; None if all take all their steps.
      downloads: Number of clients that received the model, by default the cohort.
    """
    bytes_down, bytes_up = self.bytes_of_client
    if client_steps is None:
      client_steps = [self.local_steps(k) for k in client_examples]
    cohort, steps = len(client_examples), sum(client_steps)
    sent = (cohort if downloads is None else downloads) * bytes_down, cohort * bytes_up
    passes = self.counts.full_gradients * sum(map(self._batches, client_examples))
    gradients = self.counts.gradients * steps + passes
    return dict(zip(COLUMNS, (sent[0] / 1e6, sent[1] / 1e6, steps, gradients)))
