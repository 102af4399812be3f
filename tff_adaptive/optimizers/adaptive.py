"""The server optimizers of FedAvgM, FedAdagrad, FedAdam and FedYogi, as TFF optimizers.

Algorithm 2 of "Adaptive Federated Optimization" (Reddi et al., ICLR 2021,
https://arxiv.org/abs/2003.00295) works per coordinate. Delta_t is the weighted mean of the clients'
x_i - x_t (a client's minus the global model), and eta is the server's learning rate:

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t                         m_{-1} = 0
    Adagrad: v_t = v_{t-1} + Delta_t^2                                v_{-1} = tau^2
    Adam:    v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2
    Yogi:    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)
    x_{t+1} = x_t + eta m_t / (sqrt(v_t) + tau)

Some slides of the paper print sqrt(v_t + tau); the paper and its experiments add tau outside. As
everywhere in TFF, an optimizer gets a *gradient*, which for a server is -Delta_t.

All these optimizers have the following in common (see also `tff_adaptive.optimizers.base`):

- Weights are any structure that `tf.nest` knows, of floating-point tensors.
- The state is an `OrderedDict` of the hyperparameters, `step`, m and v. If `momentum` or `beta1` is
  0, there is no m, and `momentum` or `beta1` is not a hyperparameter.
- `set_hparams` with another tau does not change v, whose first value depends on the first tau.
- The builders raise TypeError for an argument that is no number, ValueError for one out of range.
- `learning_rate` may be a function of the round, such as a schedule of `tff_adaptive.schedules`.
  The result is then `tff.learning.optimizers.schedule_learning_rate` of the optimizer.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import registry
from tff_adaptive.optimizers import base
from tff_adaptive.optimizers.base import Rate

# (v_{t-1}, Delta_t^2, beta2) -> v_t.
NextV: TypeAlias = Callable[[tf.Tensor, tf.Tensor, Any], tf.Tensor]

_SGDM, _ADAGRAD, _ADAM, _YOGI = map(registry.server_optimizer, ('sgdm', 'adagrad', 'adam', 'yogi'))


def build_sgdm(learning_rate: Rate, momentum: float = 0.0) -> tff.learning.optimizers.Optimizer:
  """SGD with momentum: m_t = momentum m_{t-1} + Delta_t, x_{t+1} = x_t + eta m_t.

  With rate 1 and no momentum this is FedAvg's server optimizer, and with momentum 0.9 FedAvgM's
  (Hsu et al. 2019, https://arxiv.org/abs/1909.06335). It equals
  `tff.learning.optimizers.build_sgdm`, which with momentum accepts no float64 or 16-bit weights.

  Args:
    learning_rate: eta, >= 0, or a function of the round. Delta_t is the negative gradient.
    momentum: The decay of m, in [0, 1).

  Returns:
    The optimizer, with hyperparameters `learning_rate` and, unless it is 0, `momentum`.
  """
  return base.build(_SGDM, _momentum, learning_rate, {'m': 0.0}, momentum=momentum)


def build_adagrad(
  learning_rate: Rate,
  *,
  beta1: float = _ADAGRAD.default('beta1'),
  tau: float = _ADAGRAD.default('tau'),
  initial_v: float | None = None,
) -> tff.learning.optimizers.Optimizer:
  """FedAdagrad's server optimizer: v_t = v_{t-1} + Delta_t^2.

  It equals `tff.learning.optimizers.build_adagrad(eta, initial_v, epsilon=0)` if tau is negligible
  beside the root of `initial_v`. With epsilon > 0 TFF's Adagrad divides by sqrt(v + epsilon), which
  this one cannot do. The module explains the symbols.

  Args:
    learning_rate: eta, >= 0, or a function of the round.
    beta1: Decay of the momentum m, in [0, 1); 0 in FedAdagrad of Reddi et al. (2021).
    tau, initial_v: See `build_adam`.

  Returns:
    The optimizer, with hyperparameters `learning_rate`, `beta1` unless it is 0, `tau`.
  """
  hparams = dict(beta1=beta1, tau=tau)
  return _build(_ADAGRAD, _adagrad_v, learning_rate, initial_v, hparams)


def build_adam(
  learning_rate: Rate,
  *,
  beta1: float = _ADAM.default('beta1'),
  beta2: float = _ADAM.default('beta2'),
  tau: float = _ADAM.default('tau'),
  bias_correction: bool = _ADAM.default('bias_correction'),
  initial_v: float | None = None,
) -> tff.learning.optimizers.Optimizer:
  """FedAdam's server optimizer: v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2.

  The module explains the symbols. The first version of the paper (Reddi et al., 2021) has no
  momentum (`beta1=0`). The published code has `beta2=0.999, bias_correction=True, initial_v=0`,
  which gives the algorithm of `tff.learning.optimizers.build_adam(eta, beta1, beta2, epsilon=tau)`.

  Args:
    learning_rate: eta, >= 0, or a function of the round.
    beta1: Decay of the momentum m, in [0, 1).
    beta2: Decay of the second moment v, in [0, 1).
    tau: Degree of adaptivity, > 0. The smaller it is, the more the steps adapt.
    bias_correction: Whether eta is multiplied by sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)) in round
      t = 0, 1, ... (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, section 2, where tau is
      not rescaled). Algorithm 2 of Reddi et al. has no bias correction.
    initial_v: v_{-1}, the first v, >= 0; None for tau^2. Reddi et al. ask for at least tau^2.

  Returns:
    The optimizer, with hyperparameters `learning_rate`, `beta1` unless it is 0, `beta2`, `tau`.
  """
  hparams = dict(beta1=beta1, beta2=beta2, tau=tau)
  return _build(_ADAM, _adam_v, learning_rate, initial_v, hparams, bias_correction)


def build_yogi(
  learning_rate: Rate,
  *,
  beta1: float = _YOGI.default('beta1'),
  beta2: float = _YOGI.default('beta2'),
  tau: float = _YOGI.default('tau'),
  bias_correction: bool = _YOGI.default('bias_correction'),
  initial_v: float | None = None,
) -> tff.learning.optimizers.Optimizer:
  """FedYogi's server optimizer: v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2).

  The module explains the symbols. With `bias_correction=True` this is the same algorithm as
  `tff.learning.optimizers.build_yogi(eta, beta1, beta2, epsilon=tau,
  initial_preconditioner_value=initial_v)`, whose defaults are `beta2=0.999, initial_v=1e-6`.

  Args:
    learning_rate: eta, >= 0, or a function of the round.
    beta1, beta2, tau, bias_correction, initial_v: See `build_adam`.

  Returns:
    The optimizer, with hyperparameters `learning_rate`, `beta1` unless it is 0, `beta2`, `tau`.
  """
  hparams = dict(beta1=beta1, beta2=beta2, tau=tau)
  return _build(_YOGI, _yogi_v, learning_rate, initial_v, hparams, bias_correction)


def _momentum(at: base.At) -> base.Stepped:
  """The formula of `build_sgdm`; m sums up gradients, -Delta_t, and so has the opposite sign."""
  if not at.slots:
    return at.moved(at.g), {}
  m = at.h['momentum'] * at.slots['m'] + at.g
  return at.moved(m), {'m': m}


def _adagrad_v(v: tf.Tensor, square: tf.Tensor, beta2: Any) -> tf.Tensor:
  return v + square  # Adagrad forgets nothing.


def _adam_v(v: tf.Tensor, square: tf.Tensor, beta2: Any) -> tf.Tensor:
  return beta2 * v + (1 - beta2) * square


def _yogi_v(v: tf.Tensor, square: tf.Tensor, beta2: Any) -> tf.Tensor:
  return v - (1 - beta2) * square * tf.sign(v - square)


@dataclasses.dataclass(frozen=True)
class _Adaptive:
  """A step of Algorithm 2 of Reddi et al. for one weight tensor, with the optimizer's `next_v`."""

  next_v: NextV
  bias_correction: bool

  def __call__(self, at: base.At) -> base.Stepped:
    eta = at.h[base.RATE]
    beta1 = at.h.get('beta1')
    beta2 = at.h.get('beta2')
    slots: base.Tensors = {}
    m = delta = -at.g
    if beta1 is not None:
      m = slots['m'] = beta1 * at.slots['m'] + (1 - beta1) * delta
    v = slots['v'] = self.next_v(at.slots['v'], tf.square(delta), beta2)
    if self.bias_correction:
      eta *= tf.sqrt(1 - beta2**at.t)
      if beta1 is not None:
        eta /= 1 - beta1**at.t
    return at.x + eta * m / (tf.sqrt(v) + at.h['tau']), slots


def _build(
  entry: registry.ServerOptimizer,
  next_v: NextV,
  learning_rate: Rate,
  initial_v: float | None,
  hparams: dict[str, Any],
  bias_correction: bool = False,
) -> tff.learning.optimizers.Optimizer:
  """Builds an adaptive optimizer; v_{-1} is `initial_v`, or tau^2 if this is None."""
  values = entry.values({'tau': hparams['tau'], 'initial_v': initial_v})
  first_v = values['tau'] * values['tau'] if initial_v is None else values['initial_v']
  formula = _Adaptive(next_v, bias_correction)
  return base.build(entry, formula, learning_rate, {'m': 0.0, 'v': first_v}, **hparams)
