"""What a round costs: bytes sent and local steps. No TensorFlow.

Bytes are those of table 5 of "AdaBest" (Varno et al., 2022), in its letters: n parameters, K_i
local steps of client i. They are the costs of the published algorithms.
"""

import dataclasses
from collections.abc import Sequence

from tff_adaptive import registry
from tff_adaptive._utils import validation

COLUMNS = ('megabytes_down', 'megabytes_up', 'local_steps')


@dataclasses.dataclass(frozen=True)
class Cost:
  """Costs of a cohort and the server together.

  Attributes:
    bytes_down: Bytes that the server sends to all clients of the cohort.
    bytes_up: Bytes that they send back.
    local_steps: Sum of K_i.
  """

  bytes_down: int
  bytes_up: int
  local_steps: int

  def columns(self) -> dict[str, float]:
    """Returns what metrics.csv says of a round; a megabyte is 10^6 bytes."""
    values = (self.bytes_down / 1e6, self.bytes_up / 1e6, self.local_steps)
    return dict(zip(COLUMNS, values))


def local_steps(num_examples: int, batch_size: int | None, epochs: int) -> int:
  """K_i, the steps that a client takes in a round: E ceil(n_i / B).

  Args:
    num_examples: n_i >= 0.
    batch_size: B >= 1, or None for all examples at once.
    epochs: E >= 1.
  """
  validation.whole_number('num_examples', num_examples, 0, 'give the examples of a client')
  validation.whole_number('epochs', epochs, 1, 'give the passes over the data in a round')
  if batch_size is None:
    return epochs if num_examples else 0
  validation.whole_number('batch_size', batch_size, 1, 'give None for all examples at once')
  return epochs * -(-num_examples // batch_size)


@dataclasses.dataclass(frozen=True)
class CostModel:
  """The costs of an algorithm on a model, for cohorts of any sizes.

  SCAFFOLD/m counts n sent up, as published. This implementation has a client contribute two sums
  to a round, g_i and the quotient g_i / (K_i eta_l): with unequal K_i the server cannot get the
  mean of the quotients from the mean of the g_i. A deployment where the server sees each client's
  update sends g_i and the one number K_i; one where it sees nothing but sums sends 2n, as SCAFFOLD.

  Attributes:
    counts: What the algorithm sends n of: `registry.algorithm(name).counts(values)`.
    num_parameters: n >= 1.
    batch_size: B, or None for all of a client's examples at once.
    epochs: E.
    bytes_per_parameter: 4 for float32.
  """

  counts: registry.Counts
  num_parameters: int
  batch_size: int | None
  epochs: int = 1
  bytes_per_parameter: int = 4

  def __post_init__(self) -> None:
    validation.instance(
      'counts',
      self.counts,
      registry.Counts,
      'tff_adaptive.registry.Counts',
      "give tff_adaptive.registry.algorithm('fed_avg').counts({}), say",
    )
    validation.whole_number('num_parameters', self.num_parameters, 1, "give the model's parameters")
    validation.whole_number('bytes_per_parameter', self.bytes_per_parameter, 1, 'float32 has 4')
    local_steps(0, self.batch_size, self.epochs)

  @property
  def bytes_of_client(self) -> tuple[int, int]:
    """Bytes that a client receives and sends in a round."""
    each = self.num_parameters * self.bytes_per_parameter
    return self.counts.down * each, self.counts.up * each

  def local_steps(self, num_examples: int) -> int:
    """K_i of a client with so many examples."""
    return local_steps(num_examples, self.batch_size, self.epochs)

  def round(
    self,
    client_examples: Sequence[int],
    client_steps: Sequence[int] | None = None,
    downloads: int | None = None,
  ) -> Cost:
    """Returns the cost of one round.

    Args:
      client_examples: n_i of each client of the cohort, as many as it trains on.
      client_steps: K_i of each, where clients may take fewer steps than their examples make; None:
        all.
      downloads: Clients that received the model, the cohort among them; None: the cohort.
    """
    bytes_down, bytes_up = self.bytes_of_client
    if client_steps is None:
      client_steps = [self.local_steps(k) for k in client_examples]
    cohort = len(client_examples)
    return Cost(
      bytes_down=(cohort if downloads is None else downloads) * bytes_down,
      bytes_up=cohort * bytes_up,
      local_steps=sum(client_steps),
    )
