"""Compression of what clients send, with or without error feedback.

A compressor is a part that acts on the finished messages of a client: the update, and what other
parts send besides it. `messages` applies the compressors of a chain.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.compression import bits as bits_lib, quantizers, selection
from tff_adaptive.corrections import base, results
from tff_adaptive.corrections.base import Weights

FEEDBACKS = ('none', 'ef14', 'ef21')
_FEEDBACK = 'Error feedback: none, ef14 (send what was left out before) or ef21 (send changes)'


def _num_bits(name: str, value: Any, hint: str) -> Any:
  return validation.whole_number(name, value, 1, hint, 16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compressor(base.Correction):
  """A compressor of vectors, the base class of all. A subclass has `compress` and `message_bits`.

  A client's update is one message, and so is what each other part uploads in `client_update`. In an
  upload, tensors of rank 0 are sent as they are. A message is compressed as one vector, or tensor
  by tensor (`by_tensor`), as float32. What parts exchange before clients train is not compressed.

  In a chain a selection comes first (`TopK`, `RandK`), and then a format (`Quantize`, ...), which
  gets the selected numbers. The feedback of the first compressor is around all of them.

  Attributes:
    feedback: 'none'; 'ef14', in which a client adds to its message what compression left out of its
      earlier messages; or 'ef21', in which it sends the compressed difference to what the server
      has of it. Clients then keep a state of the size of their messages.
    decay: Factor of what was left out, in [0, 1], for 'ef14'; SparseLoCo has one below 1.
    keeps_non_finite: Whether what the server decodes has NaN or infinity if the message has any, so
      that no pass over the message need look for them.
  """

  feedback: str = option('none', _FEEDBACK, choices=FEEDBACKS)
  decay: float = option(1.0, 'Factor of what was left out (ef14)', validation.up_to_one)
  compresses = True
  # What `LowRank` keeps at clients is no drift estimate, and asks for no equal weights.
  client_weighting = 'examples'
  keeps_non_finite: ClassVar[bool] = False

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.decay != 1 and self.feedback != 'ef14':
      raise ValueError(
        f'decay is {self.decay:g}, but feedback is {self.feedback}: the decay is for feedback=ef14;'
        ' leave it out.'
      )

  @property
  def parts(self) -> tuple[base.Correction, ...]:
    """The part itself; with feedback the part that keeps the client's state stands before it."""
    # The memory is a part of its own, so that compressors without feedback keep no client state.
    plain = self.with_feedback('none')
    if self.feedback == 'ef14':
      return EF14(self.decay), plain
    if self.feedback == 'ef21':
      return EF21(), plain
    return (self,)

  def with_feedback(self, feedback: str) -> Compressor:
    """Returns the compressor as it acts with this kind of feedback."""
    # The decay acts in `EF14.before`; with another feedback than ef14 it would be refused.
    return dataclasses.replace(self, feedback=feedback, decay=1.0)

  @property
  def by_tensor(self) -> bool:
    """Whether the tensors of a message are compressed one by one, if it is a chain's first."""
    return True

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns what the server decodes of a vector, in the same shape and dtype.

    Args:
      values: Numbers, float32 [n].
      seed: int32 [2], for stateless draws. It depends on the run's seed, the round, the client, the
        message and the tensor.
    """
    raise NotImplementedError(f'{type(self).__name__} needs compress(values, seed)')

  def decoded(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns `compress`'s result; raises ValueError if it differs in form from the values."""
    return results.decoded(self, values, self.compress(values, seed))

  def compress_all(self, vectors: Sequence[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
    """Returns what the server decodes of vectors that are compressed as one; see `compress`."""
    whole = self.decoded(tf.concat(vectors, 0), seed)
    return tf.split(whole, [vector.shape.num_elements() for vector in vectors])


@dataclasses.dataclass(frozen=True)
class EF14(base.Correction):
  """Error feedback: a client sends C(m + b e), and keeps e <- m + b e - C(m + b e).

  "1-Bit Stochastic Gradient Descent ..." (Seide et al., 2014); "Error Feedback Fixes SignSGD ..."
  (Karimireddy et al., ICML 2019), Algorithm 1. With a decay b below 1 this is SparseLoCo's (Sarfi
  et al., 2025), Algorithm 1. m is a message, such as the update. A compressor's `feedback` adds it.

  Attributes:
    decay: b, in [0, 1].
  """

  decay: float = 1.0
  name = 'ef14'
  title = 'EF14'

  def client_state(self, weights: Weights) -> Any:
    # A chain has a memory for each of its messages in place of this one: `messages.with_memories`.
    return collections.OrderedDict(memory=(base.zeros(weights),))

  def inference_weights(self, server_state: Any, theta: Weights, theta_bar: Weights) -> None:
    # The memory moves no theta away from theta-bar, as an h would: there is one model to evaluate.
    return None

  def before(self, message: Weights, memory: Weights) -> Weights:
    """Returns what is compressed."""
    return base.combine(lambda m, e: m + self.decay * e, message, memory)

  def after(self, asked: Weights, sent: Weights, memory: Weights) -> tuple[Weights, Weights]:
    """Returns what the server takes for the message, and the new memory."""
    # Algorithm 1: e^+ is the rest of m + b e, what was asked for, so that nothing is lost for good.
    return sent, base.combine(tf.subtract, asked, sent)

  def lost(self, memory: Weights) -> Weights:
    """Returns what the decay takes from the memory for good."""
    return base.combine(lambda e: (1 - self.decay) * e, memory)

  def of_sum(self) -> EF14:
    """Returns the feedback for a message that the server adds up."""
    return self


@dataclasses.dataclass(frozen=True)
class EF21(base.Correction):
  """EF21: a client sends C(m - h), and client and server set h <- h + C(m - h), the message.

  "EF21: A New, Simpler, Theoretically Better ..." (Richtarik et al., NeurIPS 2021), Algorithm 2. m
  is a message, such as the update. The server has an h for each client and each kind of message; a
  client that is away is not counted. A compressor's `feedback` adds it.
  """

  name = 'ef21'
  title = 'EF21'

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(memory=(base.zeros(weights),))

  def inference_weights(self, server_state: Any, theta: Weights, theta_bar: Weights) -> None:
    return None

  def before(self, message: Weights, memory: Weights) -> Weights:
    """Returns what is compressed."""
    return base.combine(tf.subtract, message, memory)

  def after(self, asked: Weights, sent: Weights, memory: Weights) -> tuple[Weights, Weights]:
    """Returns what the server takes for the message, and the new memory."""
    # The server would add the same numbers to its copy of h, so the client's h stands for both.
    known = base.combine(tf.add, memory, sent)
    return known, known

  def of_sum(self) -> EF14:
    """Returns the feedback for a message that the server adds up.

    EF21 then is for the sum M of all messages: h <- h + C(M - h). M - h is the message and what was
    left out before, and the server adds C(M - h) to its sum: this is EF14.
    """
    return EF14()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection(Compressor):
  """The base class of compressors that send some numbers of a vector, and where they are.

  A subclass has `num_kept`, `selected` and `index_bits`.
  """

  def num_kept(self, size: int) -> int:
    """Returns how many of `size` numbers are sent."""
    raise NotImplementedError

  def selected(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns which numbers are sent, bool [n]."""
    raise NotImplementedError

  def factor(self, size: int) -> float:
    """Returns the factor by which the server multiplies what it decodes."""
    return 1.0

  def index_bits(self, size: int) -> int:
    """Returns the bits that say which of `size` numbers are sent."""
    raise NotImplementedError

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    size = values.shape.num_elements() or 0
    sent = tf.where(self.selected(values, seed), values, tf.zeros_like(values))
    factor = self.factor(size)
    # No multiplication by 1, which would be one more pass over the model.
    if factor == 1:
      return sent
    return factor * sent

  def message_bits(self, size: int) -> int:
    return self.index_bits(size) + bits_lib.FLOAT * self.num_kept(size)


_SHARE_HINT = 'give a share such as 0.05'
_SHARE = validation.in_half_open_unit_interval
_WHOLE = 'What the share is of: the whole model, or each tensor'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfAShare(Selection):
  """The base class of selections of a share of the numbers of a model, or of each tensor."""

  share: float = option(0.05, 'Share of the numbers that are sent', _SHARE, _SHARE_HINT)
  of: str = option('model', _WHOLE, choices=('model', 'tensor'))

  @property
  def by_tensor(self) -> bool:
    return self.of == 'tensor'

  def num_kept(self, size: int) -> int:
    return selection.num_kept(size, self.share)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopK(_OfAShare):
  """The numbers of largest magnitude are sent.

  "Sparsified SGD with Memory" (Stich et al., NeurIPS 2018). ||C(x) - x||^2 <= (1 - k/n) ||x||^2.

  Attributes:
    share: k/n, in (0, 1]; at least one number is sent.
    of: 'model' or 'tensor'.
  """

  name = 'top_k'
  title = 'top-k'
  summary = 'clients send the largest numbers of their updates'
  keeps_non_finite = True  # They are the largest.
  paper = 'Stich et al., "Sparsified SGD with Memory", NeurIPS 2018'

  def selected(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return selection.largest(values, self.num_kept(values.shape.num_elements() or 0))

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    (sent,) = self.compress_all([values], seed)
    return sent

  def compress_all(self, vectors: Sequence[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
    k = self.num_kept(sum(vector.shape.num_elements() or 0 for vector in vectors))
    return selection.keep_largest(vectors, k)

  def index_bits(self, size: int) -> int:
    return bits_lib.indices(size, self.num_kept(size))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandK(_OfAShare):
  """Numbers at random positions are sent, and the seed that the positions follow from.

  Without feedback the server multiplies them by n/k, which leaves no bias: the mean of ||C(x) -
  x||^2 is (n/k - 1) ||x||^2. With feedback it does not, and the mean is (1 - k/n) ||x||^2.

  Attributes:
    share: k/n, in (0, 1]; at least one number is sent.
    of: 'model' or 'tensor'.
  """

  name = 'rand_k'
  title = 'rand-k'
  summary = 'clients send numbers at random positions of their updates'
  paper = 'Stich et al., "Sparsified SGD with Memory", NeurIPS 2018'

  def selected(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # The largest of independent random numbers are at random positions. The server draws the same
    # numbers from the seed, so positions need not be sent.
    keys = tf.random.stateless_uniform(values.shape, seed)
    return selection.largest(keys, self.num_kept(values.shape.num_elements() or 0))

  def factor(self, size: int) -> float:
    # With feedback the factor must go: n/k times a number may be further from it than 0 is, and the
    # memory could then grow from round to round.
    if self.feedback == 'none':
      return size / self.num_kept(size)
    return 1.0

  def index_bits(self, size: int) -> int:
    if self.num_kept(size) < size:
      return bits_lib.SEED
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sign(Compressor):
  """The signs are sent, and the mean magnitude of each tensor."""

  name = 'sign'
  title = 'sign'
  summary = 'clients send signs and a scale for each tensor'
  paper = 'Karimireddy et al., "Error Feedback Fixes SignSGD ...", ICML 2019'

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return quantizers.sign(values)

  def message_bits(self, size: int) -> int:
    return bits_lib.FLOAT + size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qsgd(Compressor):
  """QSGD: magnitudes are rounded at random to multiples of the tensor's norm over s.

  Without feedback it has no bias. With feedback the server divides by 1 + min(n/s^2, sqrt(n)/s),
  which makes it a contraction in the mean.

  Attributes:
    levels: s, the number of multiples besides 0.
  """

  levels: int = option(15, 'Levels of a magnitude besides 0', validation.count, 'give 1 or more')
  name = 'qsgd'
  title = 'QSGD'
  summary = 'updates are rounded at random to levels of their norm'
  paper = 'Alistarh et al., "QSGD", NeurIPS 2017'

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    rounded = quantizers.qsgd(values, uniforms(values, seed), self.levels)
    if self.feedback == 'none':
      return rounded
    # Q has no bias and a mean squared error of at most w ||x||^2. Divided by 1 + w its error is at
    # most w / (1 + w) ||x||^2: a contraction, as error feedback needs it.
    variance = quantizers.qsgd_variance(values.shape.num_elements() or 1, self.levels)
    return rounded / (1 + variance)

  def message_bits(self, size: int) -> int:
    # The norm, and codes of -s to s.
    return bits_lib.FLOAT + bits_lib.codes(size, 2 * self.levels + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantize(Compressor):
  """Numbers are rounded to 2^b values between the least and the largest number of a tensor.

  Attributes:
    bits: b, from 1 to 16; with feedback from 2, because one bit need not come nearer to a message.
    random: Whether rounding is at random, without bias, or to the nearest value.
  """

  bits: int = option(8, 'Bits of a number, 1 to 16', _num_bits, 'give 8, say')
  random: bool = option(True, 'Round at random, without bias, and not to the nearest value')
  name = 'quantize'
  title = 'uniform rounding'
  summary = 'updates are rounded to equally spaced values'
  paper = 'Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017'

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.feedback != 'none' and self.bits < 2:
      raise ValueError(
        f'bits is {self.bits} with feedback={self.feedback}, whose error may then grow: give 2 or'
        ' more.'
      )

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    draws = None
    if self.random:
      draws = uniforms(values, seed)
    return quantizers.uniform(values, self.bits, draws)

  def message_bits(self, size: int) -> int:
    # The least and the largest number, between which the server spaces the values.
    return 2 * bits_lib.FLOAT + self.bits * size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ternary(Compressor):
  """Signs are sent at random, else 0, and the largest magnitude of each tensor.

  Without feedback it has no bias. With feedback the server divides by sqrt(n), which makes it a
  contraction in the mean.
  """

  name = 'ternary'
  title = 'ternary'
  summary = 'clients send -1, 0 or 1 at random and a scale for each tensor'
  paper = 'Wen et al., "TernGrad", NeurIPS 2017'

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    sent = quantizers.ternary(values, uniforms(values, seed))
    if self.feedback == 'none':
      return sent
    # 1 + w of `quantizers.ternary`'s bound w = sqrt(n) - 1, as in `Qsgd.compress`.
    return sent / (values.shape.num_elements() or 1) ** 0.5

  def message_bits(self, size: int) -> int:
    return bits_lib.FLOAT + bits_lib.ternary_digits(size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Float16(Compressor):
  """Numbers are sent as float16: an error of 2^-11 of a number, or 2^-25 below 2^-14."""

  name = 'float16'
  title = 'float16'
  summary = 'clients send updates as float16'

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return quantizers.rounded(values, tf.float16)

  def message_bits(self, size: int) -> int:
    return 16 * size


@dataclasses.dataclass(frozen=True, kw_only=True)
class BFloat16(Compressor):
  """Numbers are sent as bfloat16: an error of 2^-8 of a number."""

  name = 'bfloat16'
  title = 'bfloat16'
  summary = 'clients send updates as bfloat16'

  def compress(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return quantizers.rounded(values, tf.bfloat16)

  def message_bits(self, size: int) -> int:
    return 16 * size


def uniforms(values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns random numbers in [0, 1), float32, in the shape of a vector."""
  return tf.random.stateless_uniform(values.shape, seed)
