"""The forms in which libraries depart from the test vectors: the oracle with one term changed."""

from collections.abc import Callable
from typing import Any

import numpy as np

import oracle
from oracle import methods, optimizers, personal
from research.peers import cases


class TffFedProx(oracle.FedProx):
  """The proximal term is of the other sign."""

  def correction(self, i: int, theta_i: Any) -> Any:
    return -super().correction(i, theta_i)


class OfSteps(oracle.FedAvg):
  """A client counts with the examples of its steps, not with all that it has."""

  def round(self, cohort: Any, limits: Any = None) -> None:
    self.taken = {i: self.examples(i, limits[i]) for i in cohort}
    super().round(cohort, limits)

  def examples(self, i: int, steps: int) -> list[int]:
    """The positions of the examples of a client's first steps."""
    number = len(self.clients[i][1])
    starts = [*range(0, number, self.batch_size)] * self.epochs
    return [k for start in starts[:steps] for k in range(number)[start : start + self.batch_size]]

  def mean(self, cohort: Any, values: Any) -> Any:
    weights = [len(self.taken[i]) if self.by_examples else 1.0 for i in cohort]
    return np.average([values[i] for i in cohort], axis=0, weights=weights)


class TffFedProxOfSteps(OfSteps, TffFedProx):
  """Both."""


class TffMimeLite(OfSteps, methods.MimeLite):
  """The gradient at the server's model is that of the examples of the steps too."""

  def exchange(self, cohort: Any) -> None:
    c = {}
    for i in cohort:
      x, y = self.clients[i]
      c[i] = self.gradient(self.theta, x[self.taken[i]], y[self.taken[i]])
    self.c = self.mean(cohort, c)


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
    super().__init__(*args, **{**options, 'mean_examples': np.mean(sizes)})
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
    rho = self.local_momentum
    lengths = {i: np.sum(1 - rho ** np.arange(1, steps[i] + 1)) / (1 - rho) for i in cohort}
    effective = self.mean(cohort, lengths)
    models = {i: effective / lengths[i] * (self.theta - g[i]) for i in cohort}
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

  def __init__(self, *args: Any) -> None:
    super().__init__(*args)
    self.of_case = self.tau

  def __call__(self, theta: Any, delta: Any) -> Any:
    self.tau = self.of_case * np.sqrt(1 - self.beta2 ** (self.t + 1))
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


def _adaptive(
  kind: Any, v: float | None = None, correct: bool = True, m: float = 0.0, t: int = 0
) -> Callable[..., Any]:
  """Makes a case's adaptive optimizer, whose m, v (None: the case's) and t begin with these."""

  def make(of_case: Any) -> Any:
    moments = (of_case['beta1'], of_case.get('beta2'))
    first_v = of_case['initial_v'] if v is None else v
    optimizer = kind(of_case['name'], of_case['rate'], *moments, of_case['tau'], first_v, correct)
    optimizer.m = m
    optimizer.t = t
    return optimizer

  return make


def _inside(of_case: Any) -> Any:
  """Adagrad with eps = tau^2 below the root."""
  below = of_case['initial_v'] + of_case['tau'] ** 2
  return oracle.Adaptive('adagrad', of_case['rate'], 0.0, None, 0.0, below)


def _of_tau(of_case: Any) -> Any:
  """An adaptive optimizer whose v begins with tau^2."""
  return _adaptive(oracle.Adaptive, of_case['tau'] ** 2, False)(of_case)


def _momentum(kind: Any) -> Callable[..., Any]:
  """Makes a momentum of the case's values."""
  return lambda of_case: kind(of_case['rate'], of_case['momentum'])


STEPS = 'p_i by the examples of the steps taken, for n_i'
Form = tuple[str, Callable[..., Any]]
ZERO = 'v = 0 at first'
CORRECTED = 'the rate corrected for the bias'
INSIDE: Form = ('sqrt(v + eps) for sqrt(v) + tau', _inside)
BOTH: Form = (f'{ZERO}; m and v corrected for the bias', _adaptive(Corrected, 0.0))
FROM_ZERO: Form = (ZERO, _adaptive(oracle.Adaptive, 0.0, False))
TWICE: Form = (
  f'{ZERO}; the update multiplied by the server rate before m and v',
  _adaptive(TwiceRated, 0.0, False),
)
UNCORRECTED = 'no bias correction'  # Where a case has one.
ZERO_UNCORRECTED: Form = (f'{FROM_ZERO[0]}; {UNCORRECTED}', FROM_ZERO[1])
OF_TAU_UNCORRECTED: Form = (f'v = tau^2 at first; {UNCORRECTED}', _of_tau)
TWICE_UNCORRECTED: Form = (f'{TWICE[0]}; {UNCORRECTED}', TWICE[1])

# (library, case or algorithm) -> the form in words, and its class, or what makes its server
# optimizer from the values of the case's; None where it does not depart.
FORMS: dict[tuple[str, str], Form | None] = {
  ('tff', 'fed_prox'): ('d = g(y) + mu (x - y), for g(y) + mu (y - x)', TffFedProx),
  ('tff', 'fed_avg-plain'): (STEPS, OfSteps),
  ('tff', 'fed_prox-plain'): (f'd = g(y) + mu (x - y); {STEPS}', TffFedProxOfSteps),
  ('tff', 'mime_lite-plain'): (f'{STEPS}; the gradient at x of these examples too', TffMimeLite),
  ('tff', 'fed_adagrad'): INSIDE,
  ('tff', 'fed_adam'): (f'{ZERO}; {CORRECTED}', _adaptive(oracle.Adaptive, 0.0)),
  ('tff', 'fed_adam with bias_correction'): None,
  ('tff', 'fed_yogi with bias_correction'): None,
  ('tff', 'fed_yogi'): (CORRECTED, _adaptive(oracle.Adaptive)),
  ('flower', 'fed_adagrad'): FROM_ZERO,
  ('flower', 'fed_yogi'): FROM_ZERO,
  ('flower', 'fed_adam'): (
    f'{ZERO}; {CORRECTED} with exponent t + 1',
    _adaptive(oracle.Adaptive, 0.0, t=1),
  ),
  ('flower', 'fed_yogi with bias_correction'): ZERO_UNCORRECTED,
  ('pfl', 'fed_adam'): BOTH,
  ('pfl', 'scaffold'): ('(y_i - x) / (K_i eta_l) in c_i, for (x - y_i)', PflScaffold),
  ('fedjax', 'fed_adagrad'): INSIDE,
  ('fedjax', 'fed_adam'): BOTH,
  ('fedjax', 'fed_yogi'): (
    'm = v = 1e-6 at first; both corrected for the bias',
    _adaptive(Corrected, 1e-6, m=-1e-6),
  ),
  ('fluke', 'fed_adagrad'): TWICE,
  ('fluke', 'fed_adagrad-momentum'): TWICE,
  ('fluke', 'fed_adam'): TWICE,
  ('fluke', 'fed_yogi'): TWICE,
  ('fluke', 'fed_adam with bias_correction'): TWICE_UNCORRECTED,
  ('fluke', 'fed_yogi with bias_correction'): TWICE_UNCORRECTED,
  ('fluke', 'fed_avgm'): ("the first round's update is not taken", _momentum(WithoutFirst)),
  ('fluke', 'fed_dyn'): (
    'h_i of the other sign and with mu twice; its mean over the cohort for h; mu_i = mu n-bar / n_i'
    '; a client that is new gets theta-bar',
    FlukeFedDyn,
  ),
  ('fluke', 'fed_dyn with scale_mu'): (
    'h_i of the other sign and with mu twice; its mean over the cohort for h; a client that is new'
    ' gets theta-bar',
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
  ('fl_bench', 'fed_adagrad'): FROM_ZERO,
  ('fl_bench', 'fed_adagrad-momentum'): FROM_ZERO,
  ('fl_bench', 'fed_adam'): FROM_ZERO,
  ('fl_bench', 'fed_yogi'): FROM_ZERO,
  ('fl_bench', 'fed_adam with bias_correction'): ZERO_UNCORRECTED,
  ('fl_bench', 'fed_yogi with bias_correction'): ZERO_UNCORRECTED,
  ('fl_bench', 'fed_avgm'): (
    "Nesterov's momentum",
    _momentum(optimizers.Nesterov),
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
  ('appfl', 'fed_adam with bias_correction'): OF_TAU_UNCORRECTED,
  ('appfl', 'fed_yogi with bias_correction'): OF_TAU_UNCORRECTED,
  ('fl4health', 'scaffold'): ('c_i of a client that is new begins at c, for 0', Fl4healthScaffold),
  ('nvflare', 'fed_adam'): BOTH,
  ('nvflare', 'scaffold'): (
    'the mean over the cohort in c, for the sum over it / N',
    NvflareScaffold,
  ),
}


def form_of(library: str, case: Any) -> Form | None:
  """The form that a library computes for a case, where one is known to depart."""
  name = cases.algorithm(case)
  if name is None:
    return None
  values = case['hyperparameters'] | case['server_optimizer']
  keys = [
    f'{name} with {option}' for option in ('scale_mu', 'bias_correction') if values.get(option)
  ]
  for key in (*keys, case['name'], name):
    if (library, key) in FORMS:
      return FORMS[library, key]
  return None
