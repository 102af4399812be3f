"""Low-rank messages: PowerSGD."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.compression import bits as bits_lib
from tff_adaptive.corrections import compressed
from tff_adaptive.corrections.base import Weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowRank(compressed.Compressor):
  """PowerSGD: a client sends the two factors of a matrix near its message.

  "PowerSGD" (Vogels et al., NeurIPS 2019), Algorithm 1, for each client by itself: P becomes an
  orthonormal basis of the columns of M Q, the client sends P and Q <- M^T P, and the server takes
  P Q^T for M. Clients keep Q, with which the next message begins, unless it is 0. A tensor of
  rank 3 or more is a matrix with its last axis as columns. Tensors whose factors are not smaller,
  such as biases, are sent as they are. ||P Q^T - M|| <= ||M||, and 0 if M Q has the rank of M, as
  for nearly every M of a rank up to r; not if the rows of M are orthogonal to those of before.

  Attributes:
    rank: r.
  """

  rank: int = option(2, 'Rank of the matrices that are sent', validation.count, 'give 2, say')
  name = 'low_rank'
  title = 'PowerSGD'
  summary = 'clients send factors of matrices near their updates'
  paper = 'Vogels et al., "PowerSGD", NeurIPS 2019'

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(factors=(self.first_factors(weights),))

  def inference_weights(self, server_state: Any, theta: Weights, theta_bar: Weights) -> None:
    return None

  def first_factors(self, message: Weights) -> Weights:
    """Returns the Q of a client's first message, [columns, r] for each matrix: random numbers."""
    # Random, because M Q of a Q of zeros is 0, and so would be every later Q.
    factors: list[Any] = []
    for leaf in message:
      if self._is_factored(leaf):
        shape = [leaf.shape[-1], self.rank]
        factors.append(tf.random.stateless_normal(shape, [self.rank, len(factors)]))
    return tuple(factors)

  def decode(self, message: Weights, factors: Weights) -> tuple[Weights, Weights]:
    """Returns what the server decodes of a message, and the new factors."""
    decoded = []
    new_factors: list[Any] = []
    for leaf in message:
      if not self._is_factored(leaf):
        decoded.append(leaf)
        continue
      matrix = tf.reshape(tf.cast(leaf, tf.float32), [-1, leaf.shape[-1]])
      # Algorithm 1: P <- orthonormal(M Q), [rows, r], then Q <- M^T P, [columns, r].
      basis, _ = tf.linalg.qr(matrix @ factors[len(new_factors)])
      factor = tf.matmul(matrix, basis, transpose_a=True)
      product = tf.matmul(basis, factor, transpose_b=True)
      decoded.append(tf.cast(tf.reshape(product, leaf.shape), leaf.dtype))
      # Of a matrix of zeros Q would be 0, and say nothing of where to look in the next one.
      is_zero = tf.reduce_all(tf.equal(factor, 0.0))
      new_factors.append(tf.where(is_zero, factors[len(new_factors)], factor))
    return tuple(decoded), tuple(new_factors)

  def bits_of(self, message: Weights) -> int:
    """Returns the bits of a message: those of both factors, or of a tensor as it is."""
    total = 0
    for leaf in message:
      size = leaf.shape.num_elements() or 0
      if self._is_factored(leaf):
        columns = leaf.shape[-1]
        total += bits_lib.FLOAT * self.rank * (size // columns + columns)
      else:
        total += 8 * leaf.dtype.size * size
    return total

  def message_bits(self, size: int) -> int:
    """Returns the bits of a vector, which is sent as it is; `bits_of` has those of a message."""
    return bits_lib.FLOAT * size

  def _is_factored(self, leaf: Any) -> bool:
    if leaf.shape.rank < 2:
      return False
    columns = leaf.shape[-1]
    rows = math.prod(leaf.shape[:-1])
    return self.rank * (rows + columns) < rows * columns
