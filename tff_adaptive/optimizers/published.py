"""Optimizers for clients, some of them also for servers, in their published forms.

Each is a formula for one weight tensor x with gradient g and rate eta. `optimizers.adaptive` says
what all optimizers have in common, and `build_adamw` explains the arguments.
"""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import registry
from tff_adaptive.optimizers import base
from tff_adaptive.optimizers.base import At, Rate, Stepped

_NESTEROV, _ADAMW, _AMSGRAD, _LION, _MUON = map(
  registry.client_optimizer, ('nesterov', 'adamw', 'amsgrad', 'lion', 'muon')
)
_LAMB = registry.server_optimizer('lamb')
# The slots begin at 0. There is an m even if beta1 is 0, because in Lion it decays by beta2.
_M, _MV, _MV_MAX = (dict.fromkeys(names, 0.0) for names in ('m', 'mv', ('m', 'v', 'v_max')))
# The coefficients of a Newton-Schulz step in Muon.
_QUINTIC = (3.4445, -4.7750, 2.0315)


def build_sgd(learning_rate: float) -> tff.learning.optimizers.Optimizer:
  """Returns TFF's SGD without momentum, the default client optimizer; it keeps no moments."""
  return tff.learning.optimizers.build_sgdm(learning_rate)


def build_nesterov(
  learning_rate: Rate, *, momentum: float = _NESTEROV.default('momentum')
) -> tff.learning.optimizers.Optimizer:
  """SGD with Nesterov momentum: m <- momentum m + g, x <- x - eta (g + momentum m).

  Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013,
  as in `torch.optim.SGD(nesterov=True)`. This is DiLoCo's outer optimizer. `momentum` is in [0, 1).
  """
  return base.build(_NESTEROV, _nesterov, learning_rate, _M, keeps_m=True, momentum=momentum)


def build_adamw(
  learning_rate: Rate,
  *,
  beta1: float = _ADAMW.default('beta1'),
  beta2: float = _ADAMW.default('beta2'),
  tau: float = _ADAMW.default('tau'),
  decay: float = _ADAMW.default('decay'),
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
  values = dict(beta1=beta1, beta2=beta2, tau=tau, decay=decay)
  return base.build(_ADAMW, _adamw, learning_rate, _MV, keeps_m=True, **values)


def build_adam_of_clients(
  learning_rate: Rate,
  *,
  beta1: float = _ADAMW.default('beta1'),
  beta2: float = _ADAMW.default('beta2'),
  tau: float = _ADAMW.default('tau'),
) -> tff.learning.optimizers.Optimizer:
  """The registry's client optimizer `adam`: `build_adamw` without decay.

  `optimizers.build_adam` is FedAdam's server optimizer, which has no bias correction.
  """
  return build_adamw(learning_rate, beta1=beta1, beta2=beta2, tau=tau, decay=0.0)


def build_amsgrad(
  learning_rate: Rate,
  *,
  beta1: float = _AMSGRAD.default('beta1'),
  beta2: float = _AMSGRAD.default('beta2'),
  tau: float = _AMSGRAD.default('tau'),
) -> tff.learning.optimizers.Optimizer:
  """AMSGrad: Adam whose v never falls, without bias correction.

  v_max <- max(v_max, v), x <- x - eta m / (sqrt(v_max) + tau), where m and v are the moving
  averages of g and g^2. The arguments are those of `build_adamw`. Reddi, Kale and Kumar, "On the
  Convergence of Adam and Beyond", ICLR 2018, Algorithm 2, which has no tau. PyTorch's AMSGrad
  corrects the bias.
  """
  values = dict(beta1=beta1, beta2=beta2, tau=tau)
  return base.build(_AMSGRAD, _amsgrad, learning_rate, _MV_MAX, keeps_m=True, **values)


def build_lion(
  learning_rate: Rate,
  *,
  beta1: float = _LION.default('beta1'),
  beta2: float = _LION.default('beta2'),
  decay: float = _LION.default('decay'),
) -> tff.learning.optimizers.Optimizer:
  """Lion: x <- x - eta (sign(beta1 m + (1 - beta1) g) + decay x), m <- beta2 m + (1 - beta2) g.

  Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, Algorithm 2. See
  `build_adamw` for the arguments.
  """
  values = dict(beta1=beta1, beta2=beta2, decay=decay)
  return base.build(_LION, _lion, learning_rate, _M, keeps_m=True, **values)


def build_lamb(
  learning_rate: Rate,
  *,
  beta1: float = _LAMB.default('beta1'),
  beta2: float = _LAMB.default('beta2'),
  tau: float = _LAMB.default('tau'),
  decay: float = _LAMB.default('decay'),
) -> tff.learning.optimizers.Optimizer:
  """LAMB: x <- x - eta (||x|| / ||r||) r for each tensor, r = m^ / (sqrt(v^) + tau) + decay x.

  m^, v^ and the arguments are those of `build_adamw`. You et al., "Large Batch Optimization for
  Deep Learning: Training BERT in 76 minutes", ICLR 2020, Algorithm 2, with phi(z) = z. As in the
  authors' code, the quotient is 1 if one of the norms is 0.
  """
  values = dict(beta1=beta1, beta2=beta2, tau=tau, decay=decay)
  return base.build(_LAMB, _lamb, learning_rate, _MV, keeps_m=True, **values)


def build_muon(
  learning_rate: Rate,
  *,
  momentum: float = _MUON.default('momentum'),
  beta2: float = _MUON.default('beta2'),
  tau: float = _MUON.default('tau'),
  decay: float = _MUON.default('decay'),
) -> tff.learning.optimizers.Optimizer:
  """Muon for matrices, and AdamW for vectors and scalars, with the same rate.

  Matrices: m <- momentum m + g, x <- x - eta (0.2 sqrt(max(rows, columns)) O + decay x). O is the
  nearly orthogonal factor of g + momentum m, from five Newton-Schulz steps. Jordan et al., "Muon:
  An optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is Scalable for LLM
  Training", 2025 (arXiv 2502.16982), section 2.2, with the factor that gives O the size of AdamW's
  steps. A tensor with more than two axes, such as a convolution's kernel, is reshaped to a matrix;
  its columns are the last axis. Embeddings and the last layer, for which the authors use AdamW,
  count as matrices. `momentum`, in [0, 1), is also AdamW's beta1; the rest is as in `build_adamw`.
  """
  values = dict(momentum=momentum, beta2=beta2, tau=tau, decay=decay)
  return base.build(_MUON, _muon, learning_rate, _MV, keeps_m=True, **values)


def _nesterov(at: At) -> Stepped:
  momentum = at.h.get('momentum', 0.0)
  m = momentum * at.slots['m'] + at.g
  return at.moved(at.g + momentum * m), {'m': m}


def _direction(at: At, beta1: str = 'beta1') -> Stepped:
  """Returns AdamW's direction of a step, and the new slots."""
  m = at.average(beta1, 'm', at.g)
  v = at.average('beta2', 'v', tf.square(at.g))
  m_hat = m / (1 - at.h.get(beta1, 0.0) ** at.t)
  v_hat = v / (1 - at.h['beta2'] ** at.t)
  return m_hat / (tf.sqrt(v_hat) + at.h['tau']) + at.h['decay'] * at.x, {'m': m, 'v': v}


def _adamw(at: At, beta1: str = 'beta1') -> Stepped:
  r, slots = _direction(at, beta1)
  return at.moved(r), slots


def _amsgrad(at: At) -> Stepped:
  m = at.average('beta1', 'm', at.g)
  v = at.average('beta2', 'v', tf.square(at.g))
  v_max = tf.maximum(at.slots['v_max'], v)
  return at.moved(m / (tf.sqrt(v_max) + at.h['tau'])), {'m': m, 'v': v, 'v_max': v_max}


def _lion(at: At) -> Stepped:
  r = tf.sign(at.average('beta1', 'm', at.g)) + at.h['decay'] * at.x
  return at.moved(r), {'m': at.average('beta2', 'm', at.g)}


def _lamb(at: At) -> Stepped:
  r, slots = _direction(at)
  of_x = tf.norm(at.x)
  of_r = tf.norm(r)
  ratio = tf.where((of_x > 0) & (of_r > 0), tf.math.divide_no_nan(of_x, of_r), tf.ones_like(of_x))
  return at.moved(ratio * r), slots


def _muon(at: At) -> Stepped:
  if at.x.shape.rank < 2:
    return _adamw(at, 'momentum')
  momentum = at.h.get('momentum', 0.0)
  m = momentum * at.slots['m'] + at.g
  columns = at.x.shape[-1]
  rows = at.x.shape.num_elements() // max(columns, 1)
  o = tf.reshape(at.g + momentum * m, [rows, columns])
  o = tf.reshape(_orthogonal(o) * (0.2 * max(rows, columns) ** 0.5), at.x.shape)
  return at.moved(o + at.h['decay'] * at.x), {'m': m, 'v': at.slots['v']}


def _orthogonal(matrix: tf.Tensor) -> tf.Tensor:
  """Approximates U V' of the SVD U S V' by five steps of Jordan's quintic Newton-Schulz method."""
  is_tall = matrix.shape[0] > matrix.shape[1]
  x = tf.transpose(matrix) if is_tall else matrix
  x /= tf.norm(x) + tf.constant(1e-7, x.dtype)
  a, b, c = _QUINTIC
  for _ in range(5):
    gram = tf.matmul(x, x, transpose_b=True)
    x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
  return tf.transpose(x) if is_tall else x
