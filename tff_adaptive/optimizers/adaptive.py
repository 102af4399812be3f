"""The server optimizers of FedAvg, FedAvgM, FedAdagrad, FedAdam and FedYogi, as TFF optimizers.

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

All these optimizers have the following in common (see also `optimizers.PerCoordinate`):

- Weights are any structure that `tf.nest` knows, of floating-point tensors.
- The state is an `OrderedDict` of the hyperparameters, `step`, m and v. If `momentum` or `beta1` is
  0, there is no m, and `momentum` or `beta1` is not a hyperparameter.
- `set_hparams` with another tau does not change v, whose first value depends on the first tau.
- The builders raise TypeError for an argument that is no number, ValueError for one out of range.
- `learning_rate` may be a function of the round, such as a schedule of `tff_adaptive.schedules`.
  The result is then `tff.learning.optimizers.schedule_learning_rate` of the optimizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.optimizers import base
from tff_adaptive.optimizers.base import At, Rate, Stepped, option

if TYPE_CHECKING:
  import tensorflow_federated as tff

_FED_OPT = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2'
# The help of hyperparameters that several optimizers have.
TAU = 'Degree of adaptivity, > 0'
BETA1 = 'Decay of m, in [0, 1)'
BETA2 = 'Decay of v, in [0, 1)'
INITIAL_V = 'First v; tau^2 unless given'
_TAU_HINT = 'the paper tunes it between 1e-5 and 1e-1, 1e-3 is its default'
INITIAL_V_HINT = 'give a value such as 1e-6, or leave it out for tau^2'
_BIAS_CORRECTION = "Bias correction, as in the paper's published code; off in the paper"


@dataclasses.dataclass(frozen=True)
class Sgd(base.Formula):
  """SGD: x_{t+1} = x_t + eta Delta_t. With rate 1 it is FedAvg's server optimizer."""

  name = 'sgd'
  title = 'SGD'
  summary = 'x + eta Delta'

  def step(self, at: At) -> Stepped:
    return at.moved(at.g), {}


@dataclasses.dataclass(frozen=True)
class SgdOfClients(Sgd):
  """TFF's SGD without momentum, the default client optimizer; it keeps no moments."""

  name = 'sgd'
  title = 'SGD'
  summary = 'assumed by the corrections'
  used_by = ('clients',)

  @classmethod
  def build(cls, learning_rate: Any, **values: Any) -> tff.learning.optimizers.Optimizer:
    from tff_adaptive.optimizers import published

    # TFF's own class, by which local training knows plain SGD and takes its short cut.
    return published.build_sgd(learning_rate, **values)


@dataclasses.dataclass(frozen=True)
class SgdM(base.Formula):
  """SGD with momentum: m_t = momentum m_{t-1} + Delta_t, x_{t+1} = x_t + eta m_t."""

  momentum: float = option(0.9, 'Momentum, in [0, 1)', validation.in_unit_interval)
  name = 'sgdm'
  title = 'SGDM'
  summary = 'SGD with momentum'
  paper = 'Hsu et al., "Measuring the Effects of Non-Identical Data Distribution ...", 2019'
  used_by = ('server', 'clients')
  client_rate = 0.01
  has_momentum = True

  def slots(self) -> Mapping[str, float]:
    # FedAvg's server keeps no m of the size of the model.
    if not self.momentum:
      return {}
    return {'m': 0.0}

  def step(self, at: At) -> Stepped:
    """The slot m sums up gradients, -Delta_t, and so has the opposite sign."""
    if not at.slots:
      return at.moved(at.g), {}
    m = at.h['momentum'] * at.slots['m'] + at.g
    return at.moved(m), {'m': m}


class _Adaptive(base.Formula):
  """A step of Algorithm 2 of Reddi et al. for one weight tensor; subclasses have `next_v`."""

  tau: float
  beta1: float
  initial_v: float | None
  bias_correction: bool = False
  paper = _FED_OPT

  def slots(self) -> Mapping[str, float]:
    first_v = self.initial_v
    if first_v is None:
      first_v = self.tau * self.tau  # The smallest that Algorithm 2 allows.
    if not self.beta1:
      return {'v': first_v}  # Without momentum m would be Delta itself.
    return {'m': 0.0, 'v': first_v}

  def next_v(self, at: At, square: tf.Tensor) -> tf.Tensor:
    """Returns v_t, given Delta_t^2."""
    raise NotImplementedError

  def step(self, at: At) -> Stepped:
    eta = at.h[base.RATE]
    beta1 = at.h.get('beta1')
    slots: base.Tensors = {}
    # An optimizer gets a gradient, which for a server is -Delta_t; see the module.
    m = delta = -at.g
    if beta1 is not None:
      m = slots['m'] = beta1 * at.slots['m'] + (1 - beta1) * delta
    v = slots['v'] = self.next_v(at, tf.square(delta))
    # As a factor of the rate: tau is then not rescaled (Kingma and Ba, section 2).
    if self.bias_correction:
      eta *= tf.sqrt(1 - at.h['beta2'] ** at.t)
      if beta1 is not None:
        eta /= 1 - beta1**at.t
    # With the v of this round: a coordinate's first large Delta is divided by its own size already.
    return at.x + eta * m / (tf.sqrt(v) + at.h['tau']), slots


@dataclasses.dataclass(frozen=True)
class Adagrad(_Adaptive):
  """FedAdagrad's server optimizer: v_t = v_{t-1} + Delta_t^2."""

  tau: float = option(1e-3, TAU, validation.above_zero, _TAU_HINT)
  # The paper's FedAdagrad has no momentum.
  beta1: float = option(0.0, BETA1, validation.in_unit_interval)
  initial_v: float | None = option(
    None, INITIAL_V, validation.at_least_zero, INITIAL_V_HINT, kind=float
  )
  name = 'adagrad'
  title = 'Adagrad'
  summary = 'v grows by Delta^2'
  in_state = ('beta1', 'tau')

  def next_v(self, at: At, square: tf.Tensor) -> tf.Tensor:
    return at.slots['v'] + square  # Adagrad forgets nothing.


@dataclasses.dataclass(frozen=True)
class Adam(_Adaptive):
  """FedAdam's server optimizer: v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2."""

  tau: float = option(1e-3, TAU, validation.above_zero, _TAU_HINT)
  beta1: float = option(0.9, BETA1, validation.in_unit_interval)
  beta2: float = option(0.99, BETA2, validation.in_unit_interval)
  bias_correction: bool = option(False, _BIAS_CORRECTION)
  initial_v: float | None = option(
    None, INITIAL_V, validation.at_least_zero, INITIAL_V_HINT, kind=float
  )
  name = 'adam'
  title = 'Adam'
  summary = 'v is a moving average of Delta^2'
  has_momentum = True
  in_state = ('beta1', 'beta2', 'tau')

  def next_v(self, at: At, square: tf.Tensor) -> tf.Tensor:
    beta2 = at.h['beta2']
    return beta2 * at.slots['v'] + (1 - beta2) * square


@dataclasses.dataclass(frozen=True)
class Yogi(Adam):
  """FedYogi's optimizer: v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)."""

  name = 'yogi'
  title = 'Yogi'
  summary = 'v moves towards Delta^2 by at most (1 - beta2) Delta^2'

  def next_v(self, at: At, square: tf.Tensor) -> tf.Tensor:
    # A small Delta lowers v by at most its own square, where Adam would forget a share of v itself.
    v = at.slots['v']
    return v - (1 - at.h['beta2']) * square * tf.sign(v - square)


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
  with_momentum = SgdM(momentum)  # Checks the momentum.
  if not with_momentum.momentum:
    return base.build(Sgd(), learning_rate)
  return base.build(with_momentum, learning_rate)


def build_adagrad(
  learning_rate: Rate,
  *,
  beta1: float = Adagrad.beta1,
  tau: float = Adagrad.tau,
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
  return Adagrad.build(learning_rate, beta1=beta1, tau=tau, initial_v=initial_v)


def build_adam(
  learning_rate: Rate,
  *,
  beta1: float = Adam.beta1,
  beta2: float = Adam.beta2,
  tau: float = Adam.tau,
  bias_correction: bool = Adam.bias_correction,
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
  return Adam.build(
    learning_rate,
    beta1=beta1,
    beta2=beta2,
    tau=tau,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )


def build_yogi(
  learning_rate: Rate,
  *,
  beta1: float = Yogi.beta1,
  beta2: float = Yogi.beta2,
  tau: float = Yogi.tau,
  bias_correction: bool = Yogi.bias_correction,
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
  return Yogi.build(
    learning_rate,
    beta1=beta1,
    beta2=beta2,
    tau=tau,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
