"""The methods since 2020 in plain NumPy and float64; see `oracle`."""

import numpy as np

from oracle.algorithms import FedAvg


class FedNova(FedAvg):
  """Equation (7) of FedNova (Wang et al., 2020): x - eta tau_eff sum p_i Delta_i / |a_i|.

  |a_i| is the 1-norm of the gradients' weights in Delta_i, by appendix B's closed forms.
  """

  def __init__(self, *args, local_momentum=0.0, mu=0.0, **options):
    super().__init__(*args, **options)
    self.local_momentum = local_momentum
    self.mu = mu

  def begin(self, i, rate):
    self.m = 0.0

  def corrected(self, i, theta_i, g, batch):
    self.m = self.local_momentum * self.m + g
    return self.m + self.mu * (theta_i - self.theta)

  def server_step(self, cohort, g, g_bar, steps, rate):
    k = {i: np.arange(steps[i]) for i in cohort}
    if self.mu:
      a = {i: np.sum((1 - rate * self.mu) ** k[i]) for i in cohort}
    else:
      a = {i: np.sum(1 - self.local_momentum ** (k[i] + 1)) for i in cohort}
      a = {i: a[i] / (1 - self.local_momentum) for i in cohort}
    tau_eff = self.mean(cohort, steps if self.mu else a)
    direction = tau_eff * self.mean(cohort, {i: g[i] / a[i] for i in cohort})
    self.theta = self.server(self.theta, -direction)


class FedCM(FedAvg):
  """Algorithm 1 of FedCM (Xu et al., 2021); h is the direction Delta_t."""

  def __init__(self, *args, alpha, **options):
    super().__init__(*args, **options)
    self.alpha = alpha

  def corrected(self, i, theta_i, g, batch):
    return self.alpha * g + (1 - self.alpha) * self.h

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    return self.mean(cohort, {i: g[i] / (rate * steps[i]) for i in cohort})


class FedExP(FedAvg):
  """Algorithm 1 of FedExP (Jhunjhunwala et al., 2023); theta_bar is the mean of two iterates."""

  def __init__(self, *args, eps, **options):
    super().__init__(*args, **options)
    self.eps = eps
    self.factors = []

  def server_step(self, cohort, g, g_bar, steps, rate):
    mean_square = self.mean(cohort, {i: g[i] @ g[i] for i in cohort})
    factor = max(1.0, mean_square / (2 * (g_bar @ g_bar + self.eps)))
    self.factors.append(factor)
    before = self.theta
    self.theta = before + factor * (self.server(before, -g_bar) - before)
    self.theta_bar = (before + self.theta) / 2


class MimeLite(FedAvg):
  """MimeLite, Algorithm 1 of Mime (Karimireddy et al., 2021); s is m and v, U `step`, V `track`."""

  def __init__(self, *args, base_optimizer, base_beta1=0.9, base_beta2=0.99, base_eps, **options):
    super().__init__(*args, **options)
    self.kind = base_optimizer
    self.eps = base_eps
    self.beta1 = base_beta1
    self.beta2 = base_beta2
    self.m = np.zeros_like(self.theta)
    self.v = np.zeros_like(self.theta)

  def exchange(self, cohort):
    c = {i: self.gradient(self.theta, *self.clients[i]) for i in cohort}
    self.c = self.mean([i for i in cohort if np.isfinite(c[i]).all()], c)

  def corrected(self, i, theta_i, g, batch):
    return self.step(g)

  def step(self, g):
    if self.kind == 'sgdm':
      return (1 - self.beta1) * g + self.beta1 * self.m
    if self.kind == 'adagrad':
      return g / (self.eps + np.sqrt(self.v))
    return ((1 - self.beta1) * g + self.beta1 * self.m) / (self.eps + np.sqrt(self.v))

  def track(self, g):
    self.m = (1 - self.beta1) * g + self.beta1 * self.m
    if self.kind == 'adagrad':
      self.v = self.v + g**2
    else:
      self.v = (1 - self.beta2) * g**2 + self.beta2 * self.v

  def server_step(self, cohort, g, g_bar, steps, rate):
    super().server_step(cohort, g, g_bar, steps, rate)
    self.track(self.c)


class Mime(MimeLite):
  """The same algorithm's first choice: gradients corrected as in SVRG."""

  def corrected(self, i, theta_i, g, batch):
    return self.step(g - self.sharp(self.theta, batch) + self.c)


class DeltaSGD(FedAvg):
  """Algorithm 1 of Delta-SGD (Kim et al., 2024), its gradient of x_{k-1} on the batch of step k."""

  def __init__(self, *args, gamma, growth, **options):
    super().__init__(*args, **options)
    self.gamma = gamma
    self.delta_ = growth
    self.etas = []

  def begin(self, i, rate):
    self.rate = self.eta = rate
    self.ratio = 1.0
    self.before = None

  def corrected(self, i, theta_i, g, batch):
    if self.before is not None:
      moved = np.linalg.norm(theta_i - self.before)
      changed = np.linalg.norm(g - self.sharp(self.before, batch))
      eta = min(
        self.gamma * moved / (2 * changed), np.sqrt(1 + self.delta_ * self.ratio) * self.eta
      )
      self.ratio = eta / self.eta
      self.eta = eta
    self.before = theta_i
    self.etas.append(self.eta)
    return self.eta / self.rate * g


class Scaffnew(FedAvg):
  """Algorithm 2 of ProxSkip (Mishchenko et al., 2022), all clients in every round.

  Args:
    p: The chance of a communication; None for 1 / K_i.
  """

  def __init__(self, *args, p=None, **options):
    super().__init__(*args, **options)
    self.p = p

  def correction(self, i, theta_i):
    return -self.h_i[i]

  def server_step(self, cohort, g, g_bar, steps, rate):
    ends = {i: self.theta - g[i] for i in cohort}
    super().server_step(cohort, g, g_bar, steps, rate)
    for i in cohort:
      p = self.p or 1 / steps[i]
      self.h_i[i] = self.h_i[i] + p / rate * (self.theta - ends[i])


class FedSpeed(FedAvg):
  """Algorithm 1 of FedSpeed (Sun et al., 2023), alpha = 1, rho g normalised; h_i is its g-hat_i."""

  def __init__(self, *args, lam, **options):
    super().__init__(*args, **options)
    self.lam = lam

  def correction(self, i, theta_i):
    return -self.h_i[i] + (theta_i - self.theta) / self.lam

  def new_h_i(self, i, g_i, steps, rate):
    return self.h_i[i] + g_i / self.lam

  def server_step(self, cohort, g, g_bar, steps, rate):
    amended = {i: self.theta - g[i] - self.lam * self.h_i[i] for i in cohort}
    self.theta = self.server(self.theta, self.mean(cohort, amended) - self.theta)
