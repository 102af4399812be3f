"""The forms in which libraries depart from the test vectors: the oracle with one term changed."""

from collections.abc import Callable
from typing import Any

import numpy as np

import oracle
from oracle import methods, optimizers, personal

TAU = 0.01
RATE = 0.1


class TffFedProx(oracle.FedProx):
  """The proximal term is of the other sign."""

  def correction(self, i: int, theta_i: Any) -> Any:
    return -super().correction(i, theta_i)


class PflScaffold(oracle.Scaffold):
  """c_i takes (y_i - x) / (K_i eta_l)."""

  def new_h_i(self, i: int, g_i: Any, steps: int, rate: float) -> Any:
    return self.h_i[i] - self.h - g_i / (steps * rate)


class FlBenchScaffold(oracle.Scaffold):
  """The server does not store the clients' c_i: they are 0 in each round."""

  def new_h_i(self, i: int, g_i: Any, steps: int, rate: float) -> Any:
    return np.zeros_like(g_i)

  def new_h(self, cohort: Any, g: Any, g_bar: Any, steps: Any, rate: float, fall: Any) -> Any:
    changes = [-self.h + g[i] / (steps[i] * rate) for i in cohort]
    return self.h + np.sum(changes, 0) / self.num_clients


class Fl4healthScaffold(oracle.Scaffold):
  """c_i of a client that is new is c."""

  def __init__(self, *args: Any, **options: Any) -> None:
    super().__init__(*args, **options)
    self.known: set[int] = set()

  def begin(self, i: int, rate: float) -> None:
    if i not in self.known:
      self.known.add(i)
      self.h_i[i] = self.h


class NvflareScaffold(oracle.Scaffold):
  """c takes the cohort's mean of the changes of c_i."""

  def new_h(self, cohort: Any, g: Any, g_bar: Any, steps: Any, rate: float, fall: Any) -> Any:
    whole = super().new_h(cohort, g, g_bar, steps, rate, fall) - self.h
    return self.h + whole * self.num_clients / len(cohort)


class PfllibFedDyn(oracle.FedDyn):
  """The regulariser is mu/2 ||theta_i - theta||, which has no square."""

  def correction(self, i: int, theta_i: Any) -> Any:
    drift = theta_i - self.theta
    length = np.linalg.norm(drift)
    if length == 0:  # PyTorch's gradient of a norm at 0.
      return -self.h_i[i]
    return -self.h_i[i] + self.mu[i] / 2 * drift / length


class FlBenchFedDyn(oracle.FedDyn):
  """mu theta_i is left to a weight decay that the user would have to set to mu."""

  def correction(self, i: int, theta_i: Any) -> Any:
    return super().correction(i, theta_i) - self.mu[i] * theta_i


class FlukeFedDyn(oracle.FedDyn):
  """h_i has the other sign and mu twice, h the cohort's mean; a new client gets theta-bar."""

  def __init__(self, *args: Any, **options: Any) -> None:
    sizes = [len(y) for _, y in args[1]]
    super().__init__(*args, mean_examples=np.mean(sizes), **options)
    self.begun = np.full((self.num_clients, self.theta.size), np.nan)

  def train(self, i: int, rate: float, limit: float = np.inf) -> Any:
    sent = self.theta
    is_new = np.isnan(self.begun[i]).any()
    if is_new:
      self.theta = self.theta_bar
    self.begun[i] = self.theta
    trained = super().train(i, rate, limit)
    self.theta = sent
    return trained

  def correction(self, i: int, theta_i: Any) -> Any:
    return self.mu[i] * (self.h_i[i] + theta_i - self.begun[i])

  def new_h_i(self, i: int, g_i: Any, steps: int, rate: float) -> Any:
    return self.h_i[i] + self.mu[i] * (self.begun[i] - (self.theta - g_i))

  def server_step(self, cohort: Any, g: Any, g_bar: Any, steps: Any, rate: float) -> None:
    self.theta = self.theta - g_bar + self.h_i[cohort].mean(0)


class FlukeFedNova(methods.FedNova):
  """The models are summed by weights whose sum is not 1, in place of the updates."""

  def server_step(self, cohort: Any, g: Any, g_bar: Any, steps: Any, rate: float) -> None:
    effective = self.mean(cohort, steps)
    models = {i: effective / steps[i] * (self.theta - g[i]) for i in cohort}
    self.theta = self.mean(cohort, models)


class FlukeFedExP(methods.FedExP):
  """eps is fixed."""

  def __init__(self, *args: Any, eps: float, **options: Any) -> None:
    super().__init__(*args, eps=1e-4, **options)


class PfllibPFedMe(personal.PFedMe):
  """The inner steps have a weight decay of 0.001."""

  def sharp(self, theta_i: Any, batch: Any) -> Any:
    return super().sharp(theta_i, batch) + 0.001 * theta_i


class FlBenchAPFL(personal.APFL):
  """The step of v takes the step of w, with the same gradient, again."""

  def corrected(self, i: int, theta_i: Any, g: Any, batch: Any) -> Any:
    return 2 * super().corrected(i, theta_i, g, batch)


class Corrected(oracle.Adaptive):
  """m and v are both corrected for the bias: with the factor of the rate, tau is as given."""

  def __call__(self, theta: Any, delta: Any) -> Any:
    self.tau = TAU * np.sqrt(1 - self.beta2 ** (self.t + 1))
    return super().__call__(theta, delta)


class TwiceRated(oracle.Adaptive):
  """The update is multiplied by the server's rate before m and v too."""

  def __call__(self, theta: Any, delta: Any) -> Any:
    return super().__call__(theta, self.eta * delta)


class WithoutFirst(oracle.Sgd):
  """The first update is not taken."""

  def __call__(self, theta: Any, delta: Any) -> Any:
    if np.isscalar(self.m):
      delta = 0 * delta
    return super().__call__(theta, delta)


def _adam(kind: Any, name: str, v: float, correct: bool = True, m: float = 0.0, t: int = 0) -> Any:
  """An adaptive optimizer whose m, v and t begin with these values."""
  beta1 = 0.0 if name == 'adagrad' else 0.9
  optimizer = kind(name, RATE, beta1, 0.99, TAU, v, correct)
  optimizer.m = m
  optimizer.t = t
  return optimizer


ADAPTIVE = oracle.Adaptive
ZERO = 'v = 0 at first'
CORRECTED = 'the rate corrected for the bias'
INSIDE = (
  'sqrt(v + eps) for sqrt(v) + tau',
  lambda: ADAPTIVE('adagrad', RATE, 0.0, None, 0.0, 2 * TAU**2),
)
BOTH = (f'{ZERO}; m and v corrected for the bias', lambda: _adam(Corrected, 'adam', 0.0))
TWICE = f'{ZERO}; the update multiplied by the server rate before m and v'


def _from_zero(name: str) -> tuple[str, Callable[..., Any]]:
  return ZERO, lambda: _adam(ADAPTIVE, name, 0.0, False)


def _twice(name: str) -> tuple[str, Callable[..., Any]]:
  return TWICE, lambda: _adam(TwiceRated, name, 0.0, False)


# (library, case) -> the form in words, and its class or what makes its server optimizer.
FORMS: dict[tuple[str, str], tuple[str, Callable[..., Any]]] = {
  ('tff', 'fed_prox'): ('d = g(y) + mu (x - y), for g(y) + mu (y - x)', TffFedProx),
  ('tff', 'fed_adagrad'): INSIDE,
  ('tff', 'fed_adam'): (f'{ZERO}; {CORRECTED}', lambda: _adam(ADAPTIVE, 'adam', 0.0)),
  ('tff', 'fed_yogi'): (CORRECTED, lambda: _adam(ADAPTIVE, 'yogi', TAU**2)),
  ('flower', 'fed_adagrad'): _from_zero('adagrad'),
  ('flower', 'fed_yogi'): _from_zero('yogi'),
  ('flower', 'fed_adam'): (
    f'{ZERO}; {CORRECTED} with exponent t + 1',
    lambda: _adam(ADAPTIVE, 'adam', 0.0, t=1),
  ),
  ('pfl', 'fed_adam'): BOTH,
  ('pfl', 'scaffold'): ('(y_i - x) / (K_i eta_l) in c_i, for (x - y_i)', PflScaffold),
  ('fedjax', 'fed_adagrad'): INSIDE,
  ('fedjax', 'fed_adam'): BOTH,
  ('fedjax', 'fed_yogi'): (
    'm = v = 1e-6 at first; both corrected for the bias',
    lambda: _adam(Corrected, 'yogi', 1e-6, m=-1e-6),
  ),
  ('fluke', 'fed_adagrad'): _twice('adagrad'),
  ('fluke', 'fed_adam'): _twice('adam'),
  ('fluke', 'fed_yogi'): _twice('yogi'),
  ('fluke', 'fed_avgm'): ("the first round's update is not taken", lambda: WithoutFirst(0.5, 0.9)),
  ('fluke', 'fed_dyn'): (
    'h_i of the other sign and with mu twice; its mean over the cohort for h; mu_i = mu n-bar / n_i'
    '; a client that is new gets theta-bar',
    FlukeFedDyn,
  ),
  ('fluke', 'fed_nova'): (
    'sum w_i y_i, sum w_i not 1, for x - sum w_i (x - y_i)',
    FlukeFedNova,
  ),
  ('fluke', 'fed_exp'): ('eps is 1e-4, and no option', FlukeFedExP),
  ('pfllib', 'fed_dyn'): (
    'mu/2 norm(y - x) in the loss, for mu/2 norm(y - x)^2',
    PfllibFedDyn,
  ),
  ('pfllib', 'p_fed_me'): ('0.001 p added to the gradient in p, no option', PfllibPFedMe),
  ('fl_bench', 'fed_adagrad'): _from_zero('adagrad'),
  ('fl_bench', 'fed_adam'): _from_zero('adam'),
  ('fl_bench', 'fed_yogi'): _from_zero('yogi'),
  ('fl_bench', 'fed_avgm'): (
    "Nesterov's momentum",
    lambda: optimizers.Nesterov(0.5, 0.9),
  ),
  ('fl_bench', 'scaffold'): (
    'c_i is 0 in each round: the server does not store it',
    FlBenchScaffold,
  ),
  ('fl_bench', 'fed_dyn'): (
    "mu y is not in the step's gradient, unless the user sets a weight decay of mu",
    FlBenchFedDyn,
  ),
  ('fl_bench', 'apfl'): ("the step of v moves w again by w's gradient", FlBenchAPFL),
  ('fl4health', 'scaffold'): ('c_i of a client that is new begins at c, for 0', Fl4healthScaffold),
  ('nvflare', 'fed_adam'): BOTH,
  ('nvflare', 'scaffold'): (
    'the mean over the cohort in c, for the sum over it / N',
    NvflareScaffold,
  ),
}
