"""Optimizers of clients and servers in plain NumPy, each of one weight tensor; see `oracle`.

They are called as `oracle.Sgd`, (x, delta) -> x, where delta is the negative gradient.
"""

import numpy as np


class Nesterov:
  """m <- mu m + delta, x + eta (delta + mu m)."""

  def __init__(self, eta, momentum):
    self.eta = eta
    self.momentum = momentum
    self.m = 0.0

  def __call__(self, x, delta):
    self.m = self.momentum * self.m + delta
    return x + self.eta * (delta + self.momentum * self.m)


class Adam:
  """AdamW; without a decay Adam."""

  def __init__(self, eta, beta1, beta2, tau, decay=0.0):
    self.eta = eta
    self.beta1 = beta1
    self.beta2 = beta2
    self.tau = tau
    self.decay = decay
    self.m = 0.0
    self.v = 0.0
    self.t = 0

  def average(self, delta):
    """The moving averages with the next gradient."""
    self.t += 1
    self.m = self.beta1 * self.m + (1 - self.beta1) * delta
    self.v = self.beta2 * self.v + (1 - self.beta2) * delta * delta

  def direction(self, x, delta):
    """m^ / (sqrt(v^) + tau) - decay x."""
    self.average(delta)
    m = self.m / (1 - self.beta1**self.t)
    v = self.v / (1 - self.beta2**self.t)
    return m / (np.sqrt(v) + self.tau) - self.decay * x

  def __call__(self, x, delta):
    return x + self.eta * self.direction(x, delta)


class Lamb(Adam):
  """The direction of AdamW as long as x, unless one of them is zero."""

  def __call__(self, x, delta):
    r = self.direction(x, delta)
    of_x = np.linalg.norm(x)
    of_r = np.linalg.norm(r)
    return x + self.eta * (of_x / of_r if of_x > 0 and of_r > 0 else 1.0) * r


class AmsGrad(Adam):
  """Adam without bias correction, whose v never falls."""

  v_max = 0.0

  def __call__(self, x, delta):
    self.average(delta)
    self.v_max = np.maximum(self.v_max, self.v)
    return x + self.eta * self.m / (np.sqrt(self.v_max) + self.tau)


class Lion:
  """The sign of an average with beta1, where m decays by beta2."""

  def __init__(self, eta, beta1, beta2, decay):
    self.eta = eta
    self.beta1 = beta1
    self.beta2 = beta2
    self.decay = decay
    self.m = 0.0

  def __call__(self, x, delta):
    step = np.sign(self.beta1 * self.m + (1 - self.beta1) * delta) - self.decay * x
    self.m = self.beta2 * self.m + (1 - self.beta2) * delta
    return x + self.eta * step


class Muon(Adam):
  """Orthogonal steps of tensors of two axes and more; AdamW, with the momentum as beta1, else.

  `adamw` says that this tensor takes AdamW's steps whatever its axes.
  """

  def __init__(self, eta, momentum, beta2, tau, decay, adamw=False):
    super().__init__(eta, momentum, beta2, tau, decay)
    self.adamw = adamw

  def __call__(self, x, delta):
    if self.adamw or x.ndim < 2:
      return super().__call__(x, delta)
    self.m = self.beta1 * self.m + delta
    o = (delta + self.beta1 * self.m).reshape(-1, x.shape[-1])
    large = max(o.shape)
    o = o / (np.linalg.norm(o) + 1e-7)
    for _ in range(5):  # X <- a X + b X X' X + c X X' X X' X, from the other side.
      gram = o.T @ o
      o = 3.4445 * o - 4.7750 * o @ gram + 2.0315 * o @ gram @ gram
    return x + self.eta * (0.2 * np.sqrt(large) * o.reshape(x.shape) - self.decay * x)


class PerTensor:
  """An optimizer of tensors of these shapes that are given as one vector."""

  def __init__(self, make, shapes):
    self.shapes = shapes
    self.parts = [make() for _ in shapes]
    self.eta = self.parts[0].eta

  def __call__(self, x, delta):
    cuts = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
    new = []
    for step, shape, *tensors in zip(
      self.parts, self.shapes, np.split(x, cuts), np.split(delta, cuts)
    ):
      step.eta = self.eta
      new.append(step(*(tensor.reshape(shape) for tensor in tensors)).ravel())
    return np.concatenate(new)

  @property
  def m(self):
    """The parts' m as one vector."""
    return np.concatenate([np.ravel(part.m) for part in self.parts])

  @property
  def v(self):
    """The parts' v as one vector; zeros where a part has not used it."""
    return np.concatenate([np.ravel(p.v + np.zeros(s)) for p, s in zip(self.parts, self.shapes)])
