"""Methods of 2020 to 2024 without a model for each client, in plain NumPy; see `oracle`."""

import numpy as np

from oracle import algorithms as oracle
from oracle.algorithms import FedAvg


def loss(theta, x, y):
  """The mean cross-entropy of the perceptron of `oracle.gradient`."""
  return np.mean(losses(logits(theta, x), y))


def losses(scores, y):
  """The cross-entropy of each example."""
  highest = scores.max(1)
  return np.log(np.exp(scores - highest[:, None]).sum(1)) + highest - scores[np.arange(len(y)), y]


def features(theta, x):
  """The hidden layer, [B, 4]."""
  w, a, _, _ = oracle.unpack(theta)
  return np.tanh(x @ w + a)


def logits(theta, x):
  """The scores, [B, 3]."""
  _, _, v, c = oracle.unpack(theta)
  return features(theta, x) @ v + c


def of_perceptron(theta, x, slopes):
  """The gradient by theta of a loss whose slopes by the scores, [B, 3], are given."""
  w, a, v, _ = oracle.unpack(theta)
  hidden = np.tanh(x @ w + a)
  back = (slopes @ v.T) * (1 - hidden**2)
  return oracle.pack([x.T @ back, back.sum(0), hidden.T @ slopes, slopes.sum(0)])


def shares(scores):
  """The softmax of each row."""
  powers = np.exp(scores - scores.max(1, keepdims=True))
  return powers / powers.sum(1, keepdims=True)


def slope(function, theta, step=1e-6):
  """The gradient of a function of theta by central differences, which errs by about 1e-9."""
  moves = step * np.eye(len(theta))
  return np.array([(function(theta + d) - function(theta - d)) / (2 * step) for d in moves])


class QFedAvg(FedAvg):
  """Algorithm 2 of q-FFL (Li et al., 2020), L = 1 / eta_l."""

  def __init__(self, *args, q, loss=loss, **options):
    super().__init__(*args, **options)
    self.q = q
    self.loss = loss

  def server_step(self, cohort, g, g_bar, steps, rate):
    f = {i: self.loss(self.theta, *self.clients[i]) for i in cohort}
    w = {i: g[i] / rate for i in cohort}
    delta = {i: f[i] ** self.q * w[i] for i in cohort}
    h = {i: self.q * f[i] ** (self.q - 1) * w[i] @ w[i] + f[i] ** self.q / rate for i in cohort}
    direction = self.mean(cohort, delta) / self.mean(cohort, h)
    self.theta = self.server(self.theta, -direction)


class AFL(FedAvg):
  """Algorithm 1 of AFL (Mohri et al., 2019); lambda is projected by bisection."""

  def __init__(self, *args, lambda_rate, loss=loss, **options):
    super().__init__(*args, **options)
    self.lambda_rate = lambda_rate
    self.loss = loss
    self.shares = np.full(self.num_clients, 1 / self.num_clients)

  def server_step(self, cohort, g, g_bar, steps, rate):
    n = self.num_clients
    direction = self.mean(cohort, {i: n * self.shares[i] * g[i] for i in cohort})
    raised = self.shares.copy()
    for i in cohort:
      loss_i = self.loss(self.theta, *self.clients[i])
      raised[i] += self.lambda_rate * loss_i * n / len(cohort)
    low = raised.min() - 1
    high = raised.max()
    for _ in range(200):
      middle = (low + high) / 2
      is_large = np.maximum(raised - middle, 0).sum() > 1
      low, high = (middle, high) if is_large else (low, middle)
    self.shares = np.maximum(raised - high, 0)
    self.theta = self.server(self.theta, -direction)


class FedLESAM(FedAvg):
  """Algorithm 1 of FedLESAM (Fan et al., 2024); the gradient is taken at y + rho (x' - x)/norm."""

  def __init__(self, *args, rho, **options):
    super().__init__(*args, **options)
    self.rho = rho
    self.received = np.tile(self.theta, (self.num_clients, 1))

  def kept(self, i):
    return {'received': self.received[i]}

  def begin(self, i, rate):
    change = self.received[i] - self.theta
    norm = np.linalg.norm(change)
    if norm:
      self.ascent = self.rho * change / norm
    else:
      self.ascent = change
    self.received[i] = self.theta

  def sharp(self, theta_i, batch):
    return super().sharp(theta_i + self.ascent, batch)


class FedVARP(FedAvg):
  """Algorithm 1 of FedVARP (Jhunjhunwala et al., 2022), with the table of all clients."""

  def __init__(self, *args, **options):
    super().__init__(*args, **options)
    self.last = np.zeros((self.num_clients, self.theta.size))

  def server_step(self, cohort, g, g_bar, steps, rate):
    direction = self.last.mean(0) + self.mean(cohort, {i: g[i] - self.last[i] for i in cohort})
    for i in cohort:
      self.last[i] = g[i]
    self.theta = self.server(self.theta, -direction)

  def kept(self, i):
    return {'last': self.last[i]}


class FedACG(FedAvg):
  """Algorithm 1 of FedACG (Kim et al., 2024): the server sends x + lambda m."""

  def __init__(self, *args, lookahead, pull, **options):
    super().__init__(*args, **options)
    self.lookahead = lookahead
    self.pull = pull
    self.m = np.zeros_like(self.theta)

  def train(self, i, rate, limit=np.inf):
    x = self.theta
    self.theta = x + self.lookahead * self.m
    trained = super().train(i, rate, limit)
    self.theta = x
    return trained

  def correction(self, i, theta_i):
    return self.pull * (theta_i - self.theta)

  def server_step(self, cohort, g, g_bar, steps, rate):
    ends = self.mean(cohort, {i: self.theta - g[i] for i in cohort})
    sent = self.theta + self.lookahead * self.m
    self.m = self.lookahead * self.m + (ends - sent)
    self.theta = self.server(self.theta, ends - self.theta)


class FedInit(FedAvg):
  """Algorithm 1 of FedInit (Sun et al., 2023)."""

  def __init__(self, *args, relaxation, **options):
    super().__init__(*args, **options)
    self.relaxation = relaxation
    self.ended = {}

  def state(self, i):
    return {'ended': self.ended[i]}

  def train(self, i, rate, limit=np.inf):
    x = self.theta
    self.theta = x + self.relaxation * (x - self.ended.get(i, x))
    trained = super().train(i, rate, limit)
    self.theta = x
    return trained

  def server_step(self, cohort, g, g_bar, steps, rate):
    for i in cohort:
      self.ended[i] = self.theta - g[i]
    super().server_step(cohort, g, g_bar, steps, rate)


class FedDC(FedAvg):
  """Algorithm 1 of FedDC (Gao et al., 2022) with the gradient correction of the authors' code."""

  def __init__(self, *args, drift_weight, **options):
    super().__init__(*args, **options)
    self.alpha = drift_weight
    self.c_i = np.zeros_like(self.h_i)
    self.c = np.zeros_like(self.theta)

  def correction(self, i, theta_i):
    of_drift = self.alpha * (theta_i - (self.theta - self.h_i[i]))
    return of_drift - self.c_i[i] + self.c

  def new_h_i(self, i, g_i, steps, rate):
    return self.h_i[i] - g_i

  def server_step(self, cohort, g, g_bar, steps, rate):
    change = {i: g[i] / (steps[i] * rate) - self.c for i in cohort}
    for i in cohort:
      self.c_i[i] = self.c_i[i] + change[i]
    self.c = self.c + sum(change.values()) / self.num_clients
    self.h = self.h_i.mean(0)
    target = self.theta - g_bar + self.h
    self.theta = self.server(self.theta, target - self.theta)


class Moon(FedAvg):
  """Equation (3) of MOON (Li et al., 2021); the features are the hidden layer."""

  def __init__(self, *args, contrast, temperature, **options):
    super().__init__(*args, **options)
    self.contrast = contrast
    self.temperature = temperature
    self.ended = np.tile(self.theta, (self.num_clients, 1))

  def corrected(self, i, theta_i, g, batch):
    x, _ = batch

    def similarity(a, b):
      z = features(a, x)
      other = features(b, x)
      lengths = np.linalg.norm(z, axis=1) * np.linalg.norm(other, axis=1)
      return np.exp((z * other).sum(1) / lengths / self.temperature)

    def contrastive(y):
      near = similarity(y, self.theta)
      far = similarity(y, self.ended[i])
      return -np.mean(np.log(near / (near + far)))

    return g + self.contrast * slope(contrastive, theta_i)

  def server_step(self, cohort, g, g_bar, steps, rate):
    for i in cohort:
      self.ended[i] = self.theta - g[i]
    super().server_step(cohort, g, g_bar, steps, rate)


class OnScores(FedAvg):
  """What FedLC and FedNTD share: their losses are functions of the scores, [B, 3].

  Args:
    scores: (theta, x) -> the scores.
    by_scores: (theta, x, slopes) -> the gradient of a loss whose slopes by the scores are given.
  """

  def __init__(self, *args, scores=logits, by_scores=of_perceptron, **options):
    super().__init__(*args, **options)
    self.scores = scores
    self.by_scores = by_scores


class FedLC(OnScores):
  """Equation (6) of FedLC (Zhang et al., 2022), over the classes that the client has."""

  def __init__(self, *args, calibration, **options):
    super().__init__(*args, **options)
    self.calibration = calibration

  def corrected(self, i, theta_i, g, batch):
    x, y = batch
    counts = np.bincount(self.clients[i][1], minlength=3)
    present = np.flatnonzero(counts)
    shifted = self.scores(theta_i, x)[:, present] - self.calibration * counts[present] ** -0.25
    slopes = np.zeros((len(y), 3))
    slopes[:, present] = shares(shifted)
    slopes[np.arange(len(y)), y] -= 1
    return self.by_scores(theta_i, x, slopes / len(y))


class FedNTD(OnScores):
  """Equation (5) of FedNTD (Lee et al., 2022), times T^2 as in the authors' code."""

  def __init__(self, *args, distillation, softening, **options):
    super().__init__(*args, **options)
    self.beta = distillation
    self.softening = softening

  def not_true(self, theta, x, y):
    """The softmax over the classes other than y, [B, 3], with 0 for y."""
    scores = self.scores(theta, x) / self.softening
    scores[np.arange(len(y)), y] = -np.inf
    return shares(scores)

  def corrected(self, i, theta_i, g, batch):
    x, y = batch
    # The slope of KL(q' || q) by the scores is (q - q') / T.
    slopes = (self.not_true(theta_i, x, y) - self.not_true(self.theta, x, y)) / self.softening
    factor = self.beta * self.softening**2 / len(y)
    return g + self.by_scores(theta_i, x, factor * slopes)


class FedSMOO(oracle.FedDyn):
  """Algorithm 1 of FedSMOO (Sun et al., 2023) as in FL-Simulator, with FedDyn's dual."""

  def __init__(self, *args, rho, **options):
    super().__init__(*args, **options)
    self.rho = rho
    self.dual = np.zeros_like(self.h_i)
    self.s = np.zeros_like(self.theta)

  def kept(self, i):
    return {'dual': self.dual[i]}

  def state(self, i):
    return {}  # The test vectors have h_i.

  def corrected(self, i, theta_i, g, batch):
    ascent = g - self.dual[i] - self.s
    step = self.rho * ascent / np.linalg.norm(ascent)
    self.dual[i] = self.dual[i] + step - self.s
    return super().corrected(i, theta_i, self.gradient(theta_i + step, *batch), batch)

  def server_step(self, cohort, *arguments):
    super().server_step(cohort, *arguments)
    mean = self.dual[cohort].mean(0)
    self.s = self.rho * mean / np.linalg.norm(mean)
