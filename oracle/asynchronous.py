"""Asynchronous training on least squares, event by event, in plain NumPy and float64.

All clients train all the time. A client begins anew after the server's step with its update, or at
once if the update was too stale.
"""

import heapq

import numpy as np


class FedBuff:
  """Algorithm 1 of "FedBuff" (Nguyen et al., 2022): the sum of s(tau) D_i is divided by B.

  Args:
    clients: (x [n_i, d], y [n_i]) of each client, whose loss is 1/2 mean (x w - y)^2.
    seconds: How long each trains, `steps` steps of gradient descent with `rate`.
    size, factor, server: B, s(tau), and the server optimizer: (w, direction) -> w.
    most: The largest tau of an update that is not dropped.

  Attributes:
    history: w before the first step and after each.
  """

  def __init__(self, clients, seconds, size, factor, server, rate, steps, most=np.inf, **options):
    self.clients = clients
    self.seconds = seconds
    self.size = size
    self.factor = factor
    self.server = server
    self.rate = rate
    self.steps = steps
    self.most = most
    self.w = np.zeros(clients[0][0].shape[1])
    self.own = options
    self.c = np.zeros_like(self.w)
    self.c_i = np.zeros((len(clients), self.w.size))
    self.last = np.zeros(len(clients))
    self.version = 0
    self.events = []
    self.begun = 0
    self.history = [self.w]

  def begin(self, i, now):
    """Client i receives what the server has now."""
    self.begun += 1
    event = (now + self.seconds[i], self.begun, i, self.version, self.w, self.c)
    heapq.heappush(self.events, event)

  def run(self, rounds):
    for i in range(len(self.clients)):
      self.begin(i, 0.0)
    buffer = []
    while self.version < rounds:
      now, _, i, version, w, c = heapq.heappop(self.events)
      tau = self.version - version
      if tau > self.most:
        self.begin(i, now)
        continue
      buffer.append((i, tau, *self.trained(i, w, c, version + 1)))
      if len(buffer) == self.size:
        self.step(buffer)
        for arrived, *_ in buffer:
          self.begin(arrived, now)
        buffer = []
    return np.array(self.history)

  def trained(self, i, w, c, t):
    """D_i, and what it sends besides; w and c are those of its beginning, in round t."""
    x, y = self.clients[i]
    y_i = w
    for _ in range(self.steps):
      y_i = y_i - self.rate * self.direction(i, x.T @ (x @ y_i - y) / len(y), c)
    return w - y_i, self.uploaded(i, w - y_i, c, t)

  def step(self, buffer):
    total = sum(self.factor(tau) * self.measured(d, tau) for _, tau, d, _ in buffer)
    self.w = self.server(self.w, self.towards(total / self.size, buffer))
    self.version += 1
    self.history.append(self.w)

  def measured(self, d, tau):
    return d

  def direction(self, i, g, c):
    return g

  def uploaded(self, i, d, c, t):
    return None

  def towards(self, d, buffer):
    return d


class FedAsync(FedBuff):
  """Algorithm 1 of "FedAsync" (Xie et al., 2019): w <- (1 - alpha s) w + alpha s w_i; B = 1."""

  def step(self, buffer):
    ((_, tau, d, _),) = buffer
    alpha = self.own['alpha'] * self.factor(tau)
    self.w = (1 - alpha) * self.w + alpha * (self.history[self.version - tau] - d)
    self.version += 1
    self.history.append(self.w)


class Scaffold(FedBuff):
  """SCAFFOLD's option II: c of the beginning, c_i of the arrival; c moves by whole changes."""

  def direction(self, i, g, c):
    return g - self.c_i[i] + c

  def uploaded(self, i, d, c, t):
    before = self.c_i[i].copy()
    self.c_i[i] = before - c + d / (self.steps * self.rate)
    return self.c_i[i] - before

  def towards(self, d, buffer):
    self.c = self.c + sum(change for *_, change in buffer) / len(self.clients)
    return d


class AdaBest(FedBuff):
  """AdaBest: h_i fades by the rounds between two beginnings; h takes the discounted mean."""

  def direction(self, i, g, c):
    return g - self.own['mu'] * self.c_i[i]

  def uploaded(self, i, d, c, t):
    self.c_i[i] = self.c_i[i] / (t - self.last[i]) + d
    self.last[i] = t

  def towards(self, d, buffer):
    self.c = self.own['beta'] * (self.c + d)
    return d + self.c


class FedCM(FedBuff):
  """FedCM: the momentum of the beginning; the new one is of updates that are not discounted."""

  def direction(self, i, g, c):
    return self.own['alpha'] * g + (1 - self.own['alpha']) * c

  def uploaded(self, i, d, c, t):
    return d / (self.steps * self.rate)

  def towards(self, d, buffer):
    self.c = sum(sent for *_, sent in buffer) / self.size
    return d
