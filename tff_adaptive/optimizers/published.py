"""Optimizers for clients, some of them also for servers, in their published forms.

Each is a formula for one weight tensor x with gradient g and rate eta. `optimizers.adaptive` says
what all optimizers have in common, and `build_adamw` explains the arguments. Their m begins at 0
and stays in the state even if its decay is 0, because in Lion m decays by beta2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from tff_adaptive._utils import validation, weight_groups
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.optimizers import adaptive, base
from tff_adaptive.optimizers.base import At, Rate, Stepped, option

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tff_adaptive._utils.weight_groups import NamedWeight

# The coefficients of a Newton-Schulz step in Muon.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_EPSILON_HINT = 'give 1e-8, say'
_DECAY = 'Decoupled weight decay, >= 0'


@dataclasses.dataclass(frozen=True)
class Nesterov(base.Formula):
  """SGD with Nesterov momentum: m <- momentum m + g, x <- x - eta (g + momentum m)."""

  momentum: float = option(0.9, 'Momentum, in [0, 1)', validation.in_unit_interval)
  name = 'nesterov'
  title = 'Nesterov'
  summary = "SGD with Nesterov momentum, as PyTorch's"
  paper = 'Sutskever et al., "On the importance of initialization and momentum ...", ICML 2013'
  used_by = ('server', 'clients')
  server_rate = 0.7  # DiLoCo's.
  client_rate = 0.01
  has_momentum = True

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0}

  def step(self, at: At) -> Stepped:
    momentum = at.h.get('momentum', 0.0)
    m = momentum * at.slots['m'] + at.g
    return at.moved(at.g + momentum * m), {'m': m}


@dataclasses.dataclass(frozen=True)
class AdagradOfClients(adaptive.Adagrad):
  """Adagrad as clients have it: the sums of squares begin at 0, and tau is only an epsilon."""

  tau: float = option(1e-7, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  beta1: float = 0.0
  initial_v: float | None = option(
    0.0, adaptive.INITIAL_V, validation.at_least_zero, adaptive.INITIAL_V_HINT
  )
  name = 'adagrad'
  title = 'Adagrad'
  summary = 'g / (sqrt(sum of g^2) + tau)'
  used_by = ('clients',)
  client_rate = 0.01


class _Moments(base.Formula):
  """The base class of optimizers with moving averages m of the gradient and v of its square."""

  beta1: float
  beta2: float
  tau: float
  decay: float
  in_state: ClassVar[tuple[str, ...] | None] = ('beta1', 'beta2', 'tau', 'decay')

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0, 'v': 0.0}

  def step(self, at: At) -> Stepped:
    r, slots = _direction(at)
    return at.moved(r), slots


@dataclasses.dataclass(frozen=True)
class AdamOfClients(_Moments):
  """Adam of Kingma and Ba: `AdamW` without decay."""

  beta1: float = option(0.9, adaptive.BETA1, validation.in_unit_interval)
  beta2: float = option(0.999, adaptive.BETA2, validation.in_unit_interval)
  tau: float = option(1e-8, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  decay: float = 0.0
  name = 'adam'
  title = 'Adam'
  summary = 'with bias correction'
  paper = 'Kingma and Ba, "Adam", ICLR 2015, Algorithm 1'
  used_by = ('clients',)
  client_rate = 1e-3


@dataclasses.dataclass(frozen=True)
class AmsGrad(_Moments):
  """Adam whose v never falls, without bias correction."""

  beta1: float = option(0.9, adaptive.BETA1, validation.in_unit_interval)
  beta2: float = option(0.999, adaptive.BETA2, validation.in_unit_interval)
  tau: float = option(1e-8, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  name = 'amsgrad'
  title = 'AMSGrad'
  summary = 'Adam without bias correction whose v never falls'
  paper = 'Reddi et al., "On the Convergence of Adam and Beyond", ICLR 2018, Algorithm 2'
  used_by = ('clients',)
  client_rate = 1e-3
  in_state = ('beta1', 'beta2', 'tau')

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0, 'v': 0.0, 'v_max': 0.0}

  def step(self, at: At) -> Stepped:
    m = at.average('beta1', 'm', at.g)
    v = at.average('beta2', 'v', tf.square(at.g))
    # v itself goes on as a moving average; only the step divides by its maximum.
    v_max = tf.maximum(at.slots['v_max'], v)
    return at.moved(m / (tf.sqrt(v_max) + at.h['tau'])), {'m': m, 'v': v, 'v_max': v_max}


@dataclasses.dataclass(frozen=True)
class AdamW(_Moments):
  """Adam with decoupled weight decay: x <- x - eta (m^ / (sqrt(v^) + tau) + decay x)."""

  beta1: float = option(0.9, adaptive.BETA1, validation.in_unit_interval)
  beta2: float = option(0.999, adaptive.BETA2, validation.in_unit_interval)
  tau: float = option(1e-8, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  decay: float = option(0.01, _DECAY, validation.at_least_zero)  # PyTorch's.
  name = 'adamw'
  title = 'AdamW'
  summary = 'Adam with decoupled weight decay'
  paper = 'Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm 2'
  used_by = ('clients',)
  client_rate = 1e-3


@dataclasses.dataclass(frozen=True)
class Lamb(_Moments):
  """The direction of AdamW, for each tensor as long as the tensor."""

  beta1: float = option(0.9, adaptive.BETA1, validation.in_unit_interval)
  beta2: float = option(0.999, adaptive.BETA2, validation.in_unit_interval)
  tau: float = option(1e-6, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  decay: float = option(0.0, _DECAY, validation.at_least_zero)
  name = 'lamb'
  title = 'LAMB'
  summary = "Adam's direction of each tensor, scaled to the tensor's norm"
  paper = 'You et al., "Large Batch Optimization for Deep Learning", ICLR 2020, Algorithm 2'
  server_rate = 0.01
  has_momentum = True

  def step(self, at: At) -> Stepped:
    r, slots = _direction(at)
    of_x = tf.norm(at.x)
    of_r = tf.norm(r)
    # A tensor of zeros, such as a bias at its beginning, could never move with a ratio of 0.
    has_ratio = (of_x > 0) & (of_r > 0)
    ratio = tf.where(has_ratio, tf.math.divide_no_nan(of_x, of_r), tf.ones_like(of_x))
    return at.moved(ratio * r), slots


@dataclasses.dataclass(frozen=True)
class Lion(base.Formula):
  """The sign of beta1 m + (1 - beta1) g; m itself decays by beta2."""

  beta1: float = option(0.9, adaptive.BETA1, validation.in_unit_interval)
  beta2: float = option(0.99, adaptive.BETA2, validation.in_unit_interval)
  decay: float = option(0.0, _DECAY, validation.at_least_zero)
  name = 'lion'
  title = 'Lion'
  summary = 'the sign of beta1 m + (1 - beta1) g; m decays by beta2'
  paper = 'Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, Algorithm 2'
  used_by = ('server', 'clients')
  server_rate = 1e-3
  client_rate = 1e-4
  has_momentum = True

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0}

  def step(self, at: At) -> Stepped:
    # The step looks at a mean with beta1, and the slot keeps one with beta2.
    r = tf.sign(at.average('beta1', 'm', at.g)) + at.h['decay'] * at.x
    return at.moved(r), {'m': at.average('beta2', 'm', at.g)}


@dataclasses.dataclass(frozen=True)
class Muon(base.Formula):
  """Orthogonal steps of matrices, and AdamW for vectors and scalars."""

  momentum: float = option(0.95, 'Momentum, in [0, 1)', validation.in_unit_interval)
  beta2: float = option(0.999, adaptive.BETA2, validation.in_unit_interval)
  tau: float = option(1e-8, adaptive.TAU, validation.above_zero, _EPSILON_HINT)
  decay: float = option(0.0, _DECAY, validation.at_least_zero)
  adamw: str = option(
    'none',
    'Weights that take the steps of AdamW, besides vectors: head, body, norm, embedding, none, or'
    ' names. The authors take embedding,head',
    weight_groups.check,
  )
  name = 'muon'
  title = 'Muon'
  summary = 'orthogonal steps of matrices, AdamW for the rest'
  paper = 'Jordan et al., "Muon", 2024; Liu et al., "Muon is Scalable for LLM Training", 2025'
  used_by = ('clients',)
  client_rate = 1e-3

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0, 'v': 0.0}

  def step(self, at: At) -> Stepped:
    if self.adamw != 'none':
      raise ValueError(
        f'muon with adamw={self.adamw} needs the names of the weights: it is a client optimizer, '
        'which gets them from ClientTraining; call for_weights where you use it by itself.'
      )
    # Vectors and scalars have no orthogonal factor.
    if at.x.shape.rank < 2:
      return _adamw_step(at)
    momentum = at.h.get('momentum', 0.0)
    m = momentum * at.slots['m'] + at.g
    columns = at.x.shape[-1]
    rows = at.x.shape.num_elements() // max(columns, 1)
    o = tf.reshape(at.g + momentum * m, [rows, columns])
    # The factor gives a step the size of AdamW's, so that both can have one rate.
    o = tf.reshape(_orthogonal(o) * (0.2 * max(rows, columns) ** 0.5), at.x.shape)
    # Matrices have no v; their slot stays as all tensors have the same slots.
    return at.moved(o + at.h['decay'] * at.x), {'m': m, 'v': at.slots['v']}

  def for_weights(self, weights: Sequence[NamedWeight]) -> Sequence[base.Formula]:
    everywhere = dataclasses.replace(self, adamw='none')
    formulas: list[base.Formula] = []
    for takes_adamw in weight_groups.select('adamw', self.adamw, weights):
      formulas.append(_AdamWOfMuon() if takes_adamw else everywhere)
    return formulas


@dataclasses.dataclass(frozen=True)
class _AdamWOfMuon(base.Formula):
  """The step that Muon takes for vectors, for any tensor."""

  is_by_entry = True

  def slots(self) -> Mapping[str, float]:
    return {'m': 0.0, 'v': 0.0}

  def step(self, at: At) -> Stepped:
    return _adamw_step(at)


def build_sgd(learning_rate: float) -> tff.learning.optimizers.Optimizer:
  """Returns TFF's SGD without momentum, the default client optimizer; it keeps no moments."""
  import tensorflow_federated as tff  # Only here, so that the registry can read this file.

  return tff.learning.optimizers.build_sgdm(learning_rate)


def build_nesterov(
  learning_rate: Rate, *, momentum: float = Nesterov.momentum
) -> tff.learning.optimizers.Optimizer:
  """SGD with Nesterov momentum: m <- momentum m + g, x <- x - eta (g + momentum m).

  Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013,
  as in `torch.optim.SGD(nesterov=True)`. This is DiLoCo's outer optimizer. `momentum` is in [0, 1).
  """
  return Nesterov.build(learning_rate, momentum=momentum)


def build_adamw(
  learning_rate: Rate,
  *,
  beta1: float = AdamW.beta1,
  beta2: float = AdamW.beta2,
  tau: float = AdamW.tau,
  decay: float = AdamW.decay,
) -> tff.learning.optimizers.Optimizer:
  """AdamW: x <- x - eta (m^ / (sqrt(v^) + tau) + decay x). With decay = 0 it is Adam.

  m^ and v^ are moving averages of the gradient g and of g^2, with bias correction. Kingma and Ba,
  "Adam", ICLR 2015, Algorithm 1; Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
  ICLR 2019, Algorithm 2, but the rate multiplies the decay too, as in PyTorch. TFF's Adam and AdamW
  add their epsilon before the bias correction.

  Args:
    learning_rate: The rate eta >= 0, or a function of the round.
    beta1: Decay of the moving average of g, in [0, 1).
    beta2: Decay of the moving average of g^2, in [0, 1).
    tau: The papers' epsilon, > 0, which is added to the root of v^.
    decay: The decoupled weight decay, >= 0. The default, 0.01, is PyTorch's.
  """
  return AdamW.build(learning_rate, beta1=beta1, beta2=beta2, tau=tau, decay=decay)


def build_adam_of_clients(
  learning_rate: Rate,
  *,
  beta1: float = AdamOfClients.beta1,
  beta2: float = AdamOfClients.beta2,
  tau: float = AdamOfClients.tau,
) -> tff.learning.optimizers.Optimizer:
  """The registry's client optimizer `adam`: `build_adamw` without decay.

  `optimizers.build_adam` is FedAdam's server optimizer, which has no bias correction.
  """
  return AdamOfClients.build(learning_rate, beta1=beta1, beta2=beta2, tau=tau)


def build_amsgrad(
  learning_rate: Rate,
  *,
  beta1: float = AmsGrad.beta1,
  beta2: float = AmsGrad.beta2,
  tau: float = AmsGrad.tau,
) -> tff.learning.optimizers.Optimizer:
  """AMSGrad: Adam whose v never falls, without bias correction.

  v_max <- max(v_max, v), x <- x - eta m / (sqrt(v_max) + tau), where m and v are the moving
  averages of g and g^2. The arguments are those of `build_adamw`. Reddi, Kale and Kumar, "On the
  Convergence of Adam and Beyond", ICLR 2018, Algorithm 2, which has no tau. PyTorch's AMSGrad
  corrects the bias.
  """
  return AmsGrad.build(learning_rate, beta1=beta1, beta2=beta2, tau=tau)


def build_lion(
  learning_rate: Rate,
  *,
  beta1: float = Lion.beta1,
  beta2: float = Lion.beta2,
  decay: float = Lion.decay,
) -> tff.learning.optimizers.Optimizer:
  """Lion: x <- x - eta (sign(beta1 m + (1 - beta1) g) + decay x), m <- beta2 m + (1 - beta2) g.

  Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, Algorithm 2. See
  `build_adamw` for the arguments.
  """
  return Lion.build(learning_rate, beta1=beta1, beta2=beta2, decay=decay)


def build_lamb(
  learning_rate: Rate,
  *,
  beta1: float = Lamb.beta1,
  beta2: float = Lamb.beta2,
  tau: float = Lamb.tau,
  decay: float = Lamb.decay,
) -> tff.learning.optimizers.Optimizer:
  """LAMB: x <- x - eta (||x|| / ||r||) r for each tensor, r = m^ / (sqrt(v^) + tau) + decay x.

  m^, v^ and the arguments are those of `build_adamw`. You et al., "Large Batch Optimization for
  Deep Learning: Training BERT in 76 minutes", ICLR 2020, Algorithm 2, with phi(z) = z. As in the
  authors' code, the quotient is 1 if one of the norms is 0.
  """
  return Lamb.build(learning_rate, beta1=beta1, beta2=beta2, tau=tau, decay=decay)


def build_muon(
  learning_rate: Rate,
  *,
  momentum: float = Muon.momentum,
  beta2: float = Muon.beta2,
  tau: float = Muon.tau,
  decay: float = Muon.decay,
  adamw: str = Muon.adamw,
) -> tff.learning.optimizers.Optimizer:
  """Muon for matrices, and AdamW for vectors and scalars, with the same rate.

  Matrices: m <- momentum m + g, x <- x - eta (0.2 sqrt(max(rows, columns)) O + decay x). O is the
  nearly orthogonal factor of g + momentum m, from five Newton-Schulz steps. Jordan et al., "Muon:
  An optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is Scalable for LLM
  Training", 2025 (arXiv 2502.16982), section 2.2, with the factor that gives O the size of AdamW's
  steps. A tensor with more than two axes, such as a convolution's kernel, is reshaped to a matrix;
  its columns are the last axis. `momentum`, in [0, 1), is also AdamW's beta1; the rest is as in
  `build_adamw`.

  `adamw` names weights that take AdamW's steps although they are matrices, as the option `layers`
  of FedPer does: the authors take 'embedding,head', which leaves Muon the hidden layers. Such an
  optimizer is for clients (`ClientTraining`), which know the names of the weights.
  """
  return Muon.build(
    learning_rate, momentum=momentum, beta2=beta2, tau=tau, decay=decay, adamw=adamw
  )


def _adamw_step(at: At) -> Stepped:
  """Returns the weight and slots after Muon's step for vectors, whose beta1 is the momentum."""
  r, slots = _direction(at, 'momentum')
  return at.moved(r), slots


def _direction(at: At, beta1: str = 'beta1') -> Stepped:
  """Returns AdamW's direction of a step, and the new slots."""
  m = at.average(beta1, 'm', at.g)
  v = at.average('beta2', 'v', tf.square(at.g))
  # m and v begin at 0, so that in the first steps they are too small by these factors.
  m_hat = m / (1 - at.h.get(beta1, 0.0) ** at.t)
  v_hat = v / (1 - at.h['beta2'] ** at.t)
  return m_hat / (tf.sqrt(v_hat) + at.h['tau']) + at.h['decay'] * at.x, {'m': m, 'v': v}


def _orthogonal(matrix: tf.Tensor) -> tf.Tensor:
  """Approximates U V' of the SVD U S V' by five steps of Jordan's quintic Newton-Schulz method."""
  if matrix.shape[0] > matrix.shape[1]:
    # The factor of M' is that of M, transposed, and x x' below is then the smaller of the products.
    return tf.transpose(_orthogonal(tf.transpose(matrix)))
  # With a norm of at most 1 the singular values lie where the method converges.
  x = matrix / (tf.norm(matrix) + tf.constant(1e-7, matrix.dtype))
  a, b, c = _QUINTIC
  for _ in range(5):
    gram = tf.matmul(x, x, transpose_b=True)
    x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
  return x
