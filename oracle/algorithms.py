"""The algorithms in plain NumPy and float64, written from the papers' formulas.

The tests compare this project with them, and the test vectors are made by them. Nothing here uses
TensorFlow or this project. The model is a function (theta, x, y) -> gradient of one vector of all
weights, by default an MLP with one hidden layer. The letters are those of Algorithm 1 of "AdaBest"
(Varno et al., 2022): theta the cloud model, theta_bar the mean of the client models, g_i =
theta^{t-1} - theta_i, h and h_i estimates, N clients, S in a round, K_i local steps of rate eta_l.
"""

import collections
import copy

import numpy as np

SHAPES = ((5, 4), (4,), (4, 3), (3,))
SIZES = [int(np.prod(shape)) for shape in SHAPES]


def unpack(theta):
  """A vector as the weights (W, a, V, c) of softmax(tanh(x W + a) V + c)."""
  parts = np.split(np.asarray(theta), np.cumsum(SIZES)[:-1])
  return [part.reshape(shape) for part, shape in zip(parts, SHAPES)]


def pack(weights):
  """The weights as one float64 vector."""
  return np.concatenate([np.asarray(w, np.float64).ravel() for w in weights])


def gradient(theta, x, y):
  """Gradient of the mean cross-entropy over the examples x [n, 5], y [n]."""
  w, a, v, c = unpack(theta)
  hidden = np.tanh(x @ w + a)
  scores = hidden @ v + c
  scores = np.exp(scores - scores.max(1, keepdims=True))
  error = scores / scores.sum(1, keepdims=True)
  error[np.arange(len(y)), y] -= 1
  error /= len(y)
  back = (error @ v.T) * (1 - hidden**2)
  return pack([x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)])


class Sgd:
  """theta + eta Delta, with momentum m <- momentum m + Delta."""

  def __init__(self, eta, momentum=0.0):
    self.eta = eta
    self.momentum = momentum
    self.m = 0.0

  def __call__(self, theta, delta):
    self.m = self.momentum * self.m + delta
    return theta + self.eta * self.m


class Adaptive:
  """Algorithm 2 of "Adaptive Federated Optimization": `kind` is adagrad, adam or yogi.

  The bias correction is a factor of the rate, as in section 2 of "Adam" (Kingma and Ba, 2015).
  """

  def __init__(self, kind, eta, beta1, beta2, tau, initial_v=None, bias_correction=False):
    self.kind = kind
    self.eta = eta
    self.beta1 = beta1
    self.beta2 = beta2
    self.tau = tau
    self.m = 0.0
    if initial_v is None:
      self.v = tau**2
    else:
      self.v = initial_v
    self.bias_correction = bias_correction
    self.t = 0

  def __call__(self, theta, delta):
    square = delta**2
    eta = self.eta
    self.t += 1
    if self.bias_correction:
      eta = eta * np.sqrt(1 - self.beta2**self.t) / (1 - self.beta1**self.t)
    self.m = self.beta1 * self.m + (1 - self.beta1) * delta
    if self.kind == 'adagrad':
      self.v = self.v + square
    elif self.kind == 'adam':
      self.v = self.beta2 * self.v + (1 - self.beta2) * square
    else:
      self.v = self.v - (1 - self.beta2) * square * np.sign(self.v - square)
    return theta + eta * self.m / (np.sqrt(self.v) + self.tau)


class FedAvg:
  """Federated averaging, and what the others share.

  Args:
    theta, clients: theta^0, and (x [n_i, 5], y [n_i]) of each of the N clients.
    server: The server optimizer: (theta, Delta) -> theta.
    eta_l: The client rate as a function of the round t = 0, 1, ...
    batch_size, epochs: Consecutive examples a step (None for all), and passes over them.
    clip, weight_decay: Largest norm of a corrected gradient; then this times the weights is added.
    by_examples: Whether the mean of the client models is weighted by n_i.
    sam_rho: Radius of sharpness-aware minimization; 0 for none.
    optimizer: Makes a client optimizer, `Sgd` or `Adaptive`, whose rate is replaced; None for SGD.
    optimizer_state: 'reset', 'keep' or 'average': what becomes of its m and v after a round.
    gradient: The model, (theta, x, y) -> the gradient of a batch.

  Attributes:
    last_g: The g_i of the last round, by client number.
  """

  def __init__(
    self,
    theta,
    clients,
    *,
    server,
    eta_l,
    batch_size=None,
    epochs=1,
    clip=None,
    weight_decay=0.0,
    by_examples=False,
    sam_rho=0.0,
    optimizer=None,
    optimizer_state='reset',
    gradient=gradient,
  ):
    self.gradient = gradient
    self.theta = self.theta_bar = np.asarray(theta, np.float64)
    self.clients = clients
    self.server = server
    self.eta_l = eta_l
    self.batch_size = batch_size
    self.epochs = epochs
    self.clip = clip
    self.weight_decay = weight_decay
    self.by_examples = by_examples
    self.sam_rho = sam_rho
    self.new_optimizer = optimizer or (lambda: Sgd(None))
    self.optimizer_state = optimizer_state
    self.optimizers = collections.defaultdict(self.new_optimizer)  # By client.
    self.num_clients = len(clients)
    self.t = 0
    self.h = np.zeros_like(self.theta)
    self.h_i = np.zeros((self.num_clients, self.theta.size))

  def round(self, cohort, limits=None):
    """One round with the clients of these numbers, with the most steps of each if given."""
    self.t += 1
    if not len(cohort):
      return
    rate = self.eta_l(self.t - 1)
    g = {}
    steps = {}
    self.exchange(cohort)
    for i in cohort:
      before = copy.deepcopy(self.optimizers[i])
      state = copy.deepcopy(self.kept(i))
      self.begin(i, rate)
      theta_i, steps[i] = self.train(i, rate, limits[i] if limits else np.inf)
      g[i] = self.theta - theta_i
      if not np.isfinite(g[i]).all():  # It is left out, and keeps the state that it had.
        del g[i]
        self.optimizers[i] = before
        for name, value in state.items():
          getattr(self, name)[i] = value
    cohort = list(g)
    g_bar = self.mean(cohort, g)
    last_theta_bar = self.theta_bar
    self.theta_bar = self.theta - g_bar
    self.last_g = g
    h = self.new_h(cohort, g, g_bar, steps, rate, last_theta_bar - self.theta_bar)
    for i in cohort:
      self.h_i[i] = self.new_h_i(i, g[i], steps[i], rate)
    self.h = h
    self.pass_on_optimizers(cohort)
    self.server_step(cohort, g, g_bar, steps, rate)

  def mean(self, cohort, values):
    """The cohort's mean of the values by client, with the weights of the updates."""
    weights = [len(self.clients[i][1]) if self.by_examples else 1.0 for i in cohort]
    return np.average([values[i] for i in cohort], axis=0, weights=weights)

  def pass_on_optimizers(self, cohort):
    """What the client optimizers begin the next round with."""
    if self.optimizer_state == 'reset':
      self.optimizers.clear()
    if self.optimizer_state == 'average':
      for name in {'m', 'v', 'v_max'} & set(dir(self.new_optimizer())):
        mean = self.mean(cohort, {i: getattr(self.optimizers[i], name) for i in cohort})
        for i in range(self.num_clients):
          setattr(self.optimizers[i], name, mean)

  def kept(self, i):
    """What client i keeps besides h_i, by the attribute that has it for all clients."""
    return {}

  def state(self, i):
    """The same as the test vectors have it."""
    return self.kept(i)

  def exchange(self, cohort):
    """What is sent before the local steps."""

  def begin(self, i, rate):
    """Called before a client's first local step."""

  def server_step(self, cohort, g, g_bar, steps, rate):
    self.theta = self.server(self.theta, self.delta(g_bar))

  def train(self, i, rate, limit=np.inf):
    """theta_i after its local steps, and K_i."""
    x, y = self.clients[i]
    size = self.batch_size or len(y)
    theta_i = self.theta
    steps = 0
    self.planned = min(self.epochs * -(-len(y) // size), limit)
    for _ in range(self.epochs):
      for start in range(0, len(y), size):
        if steps == limit:
          return theta_i, steps
        batch = x[start : start + size], y[start : start + size]
        g = self.corrected(i, theta_i, self.sharp(theta_i, batch), batch)
        if self.clip is not None:
          g = g * min(1.0, self.clip / np.linalg.norm(g))
        g = g + self.weight_decay * theta_i
        optimizer = self.optimizers[i]
        optimizer.eta = rate
        theta_i = self.moved(theta_i, optimizer(theta_i, -g))
        steps += 1
    return theta_i, steps

  def sharp(self, theta_i, batch):
    """The gradient at theta + rho g / ||g|| (equation (4) of FedSAM), or at theta."""
    g = self.gradient(theta_i, *batch)
    if self.sam_rho:
      g = self.gradient(theta_i + self.sam_rho * g / np.linalg.norm(g), *batch)
    return g

  def corrected(self, i, theta_i, g, batch):
    """The corrected gradient."""
    return g + self.correction(i, theta_i)

  def moved(self, before, after):
    """The weights after a local step, which the client optimizer left at `after`."""
    return after

  def correction(self, i, theta_i):
    """What is added to the local gradient."""
    return 0.0

  def new_h_i(self, i, g_i, steps, rate):
    return self.h_i[i]

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    return self.h

  def delta(self, g_bar):
    """What the server optimizer is handed."""
    return -g_bar


class FedProx(FedAvg):
  """The gradient of mu/2 ||theta_i - theta||^2 added to each local step."""

  def __init__(self, *args, mu, **options):
    super().__init__(*args, **options)
    self.mu = mu

  def correction(self, i, theta_i):
    return self.mu * (theta_i - self.theta)


class Scaffold(FedAvg):
  """Algorithm 1 of "SCAFFOLD" (Karimireddy et al., 2020); h_i is c_i and h is c."""

  def __init__(self, *args, scaffold_option, **options):
    super().__init__(*args, **options)
    self.scaffold_option = scaffold_option

  def correction(self, i, theta_i):
    return self.h - self.h_i[i]

  def new_h_i(self, i, g_i, steps, rate):
    if self.scaffold_option == 1:
      return self.gradient(self.theta, *self.clients[i])
    return self.h_i[i] - self.h + g_i / (steps * rate)

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    change = [self.new_h_i(i, g[i], steps[i], rate) - self.h_i[i] for i in cohort]
    return self.h + np.sum(change, 0) / self.num_clients


class ScaffoldM(Scaffold):
  """SCAFFOLD/m; with unequal K each client's g_i is divided by its own K_i eta_l."""

  def __init__(self, *args, **options):
    super().__init__(*args, scaffold_option=2, **options)

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    n = self.num_clients
    s = len(cohort)
    return (n - s) / n * self.h + sum(g[i] / (steps[i] * rate) for i in cohort) / n


class FedDyn(FedAvg):
  """h_i and the regulariser as Algorithm 1 prints them, mu inside h_i.

  With `mean_examples` mu_i = mu mean_examples / n_i, which does not change from round to round.
  """

  def __init__(self, *args, mu, mean_examples=None, **options):
    super().__init__(*args, **options)
    n = [len(y) for _, y in self.clients]
    self.mu = [mu if mean_examples is None else mu * mean_examples / n_i for n_i in n]

  def correction(self, i, theta_i):
    return -self.h_i[i] - self.mu[i] * (self.theta - theta_i)

  def new_h_i(self, i, g_i, steps, rate):
    return self.h_i[i] + self.mu[i] * g_i

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    return self.h + len(cohort) / self.num_clients * g_bar

  def delta(self, g_bar):
    return -(g_bar + self.h)


class AdaBest(FedAvg):
  """AdaBest as Algorithm 1 prints it, mu inside h_i; h by equation (2), for theta_bar - h.

  With another server optimizer h is the sum of pseudo-gradients of Remark 3 (`by_series`).
  """

  def __init__(
    self, *args, mu, beta, by_series=False, beta_decay=1.0, plateau_rounds=50, **options
  ):
    super().__init__(*args, **options)
    self.mu = mu
    self.beta = beta
    self.by_series = by_series
    self.beta_decay = beta_decay
    self.plateau_rounds = plateau_rounds
    self.norms = []
    self.since = 0
    self.last_round = np.zeros(self.num_clients)
    self.history = []

  def correction(self, i, theta_i):
    return -self.h_i[i]

  def new_h_i(self, i, g_i, steps, rate):
    away = self.t - self.last_round[i]
    self.last_round[i] = self.t
    return self.h_i[i] / away + self.mu * g_i

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    self.history.append(g_bar)
    if not self.by_series:
      h = self.beta * fall_of_theta_bar
      self._decay_beta(np.linalg.norm(h))
      return h
    ages = np.arange(len(self.history), 0, -1)
    return sum(self.beta**age * past for age, past in zip(ages, self.history))

  def delta(self, g_bar):
    return -(g_bar + self.h)

  def _decay_beta(self, norm):
    """beta shrinks after `plateau_rounds` rounds without a lower ||h|| since its highest."""
    self.norms.append(norm)
    peak = int(np.argmax(self.norms))
    if norm <= min(self.norms[peak:]):
      self.since = 0
    else:
      self.since = self.since + 1
    if self.since == self.plateau_rounds:
      self.beta = self.beta * self.beta_decay
      self.since = 0


class UnbalancedAdaBest(AdaBest):
  """mu_i = mu n-bar / n_i at use; n-bar is the mean n_i of earlier rounds; h_i is without mu."""

  def __init__(self, *args, **options):
    super().__init__(*args, **options)
    self.seen = []
    self.mu_at_use = self.mu
    self.mu = 1.0

  def correction(self, i, theta_i):
    if self.seen:
      n_bar = np.mean(self.seen)
    else:
      n_bar = 0.0
    return -self.mu_at_use * n_bar / len(self.clients[i][1]) * self.h_i[i]

  def new_h(self, cohort, *arguments):
    self.seen += [len(self.clients[i][1]) for i in cohort]
    return super().new_h(cohort, *arguments)
