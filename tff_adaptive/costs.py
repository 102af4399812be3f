"""What a round costs: bytes sent, local steps and arithmetic. No TensorFlow.

Tables 4 and 5 and section C.3 of the supplement of "AdaBest" (Varno et al., 2022), in its letters:
n parameters, K_i local steps of client i, |P| clients in the round, g the gradient of one batch, s
one addition, m one multiplication. The tables have FedAvg, SCAFFOLD/m, FedDyn and AdaBest; the
others are counted by the same rules, line by line of their algorithm:

  local step   g + ns + nm, and for the corrected gradient: FedProx and FedDyn's proximal part
               2ns + nm, FedDyn's and AdaBest's h_i ns, SCAFFOLD's - h_i + h 2ns
  round        the client's new h_i; at the server |P| ns for the mean and what h takes

These are the costs of the published algorithms: server SGD with rate 1, a state h_i that includes
mu. What an implementation does beyond is not counted: a server optimizer's few operations per
parameter, weight decay, clipping, and metrics. Here h_i is stored without mu, which is applied at
use: Knm more for AdaBest, none for FedDyn.
"""

import dataclasses
from collections.abc import Sequence

from tff_adaptive import registry
from tff_adaptive._utils import validation

COLUMNS = ('megabytes_down', 'megabytes_up', 'local_steps')


@dataclasses.dataclass(frozen=True)
class Cost:
  """Costs of a cohort and the server together; costs add up by `+`.

  Attributes:
    bytes_down: Bytes that the server sends to all clients of the cohort.
    bytes_up: Bytes that they send back.
    local_steps: Sum of K_i.
    gradients: Gradients of one batch computed (g).
    additions: Additions of two numbers (s) besides those within g.
    multiplications: Multiplications of two numbers (m) besides those within g.
  """

  bytes_down: int = 0
  bytes_up: int = 0
  local_steps: int = 0
  gradients: int = 0
  additions: int = 0
  multiplications: int = 0

  def __add__(self, other: 'Cost') -> 'Cost':
    mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
    return Cost(*(a + b for a, b in zip(mine, others)))

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
    counts: What the algorithm does n of: `registry.algorithm(name).counts(values)`.
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
    n, counts, cohort = self.num_parameters, self.counts, len(client_examples)
    bytes_down, bytes_up = self.bytes_of_client
    if client_steps is None:
      client_steps = [self.local_steps(k) for k in client_examples]
    steps = sum(client_steps)
    # The weighted sum of the gradients of a pass's batches: one addition, one multiplication each.
    batches = counts.full_gradients * sum(
      local_steps(k, self.batch_size, 1) for k in client_examples
    )
    additions = steps * (1 + counts.step[0]) + cohort * (counts.client[0] + 1 + counts.means)
    multiplications = steps * (1 + counts.step[1]) + cohort * counts.client[1]
    return Cost(
      bytes_down=(cohort if downloads is None else downloads) * bytes_down,
      bytes_up=cohort * bytes_up,
      local_steps=steps,
      gradients=steps + batches,
      additions=(additions + counts.server[0] + batches) * n,
      multiplications=(multiplications + counts.server[1] + batches) * n,
    )
