"""Compressed messages in plain NumPy and float64; see `oracle`."""

import collections
import functools

import numpy as np

from oracle import algorithms, methods, newer


def top_k(vector, share):
  """The largest numbers of a vector, and zeros."""
  selected = np.zeros_like(vector)
  largest = np.argsort(-np.abs(vector))[: max(1, round(share * vector.size))]
  selected[largest] = vector[largest]
  return selected


class Channel:
  """What the server decodes of the messages of clients, sent one after another.

  With 'ef14' e <- b e + m - sent (Karimireddy et al., 2019, with SparseLoCo's decay b); with 'ef21'
  h <- h + C(m - h), which stands for the message (Richtarik et al., 2021).

  Attributes:
    lost: What the server will never get of each client's last message.
  """

  def __init__(self, compress, feedback='none', decay=1.0):
    self.compress = compress
    self.feedback = feedback
    self.decay = decay
    self.memory = collections.defaultdict(float)  # By client.
    self.lost = collections.defaultdict(float)  # By client.

  def of_sum(self):
    """This channel for messages that the server adds up.

    EF21 of the sum M of all messages is h <- h + C(M - h), and the server adds C(M - h) to its sum.
    M - h is the message and what was left out, so this is EF14.
    """
    if self.feedback == 'ef21':
      self.feedback = 'ef14'
    return self

  def send(self, client, message):
    memory = self.memory[client]
    if self.feedback == 'none':
      sent = self.compress(message)
      self.lost[client] = message - sent
      return sent
    if self.feedback == 'ef21':
      self.memory[client] = memory + self.compress(message - memory)
      return self.memory[client]
    asked = self.decay * memory + message
    sent = self.compress(asked)
    self.memory[client] = asked - sent
    self.lost[client] = (1 - self.decay) * memory
    return sent


class Broadcast:
  """What clients have of a message that the server sends again and again.

  w <- w + C(x - w) (EF21-P, Gruntkowska et al., 2023; also DoubleSqueeze, Tang et al., 2019). The
  clients have the first message as it is.
  """

  def __init__(self, compress):
    self.compress = compress
    self.known = None

  def send(self, message):
    if self.known is None:
      self.known = message
    self.known = self.known + self.compress(message - self.known)
    return self.known


def unchanged(vector):
  """The compressor that leaves out nothing."""
  return vector


class Compressed:
  """What the algorithms below share: updates pass a `Channel`, the model a `Broadcast`.

  Clients train from what they have of the model; the server moves its own.
  """

  def __init__(self, *args, channel, broadcast=None, **options):
    super().__init__(*args, **options)
    self.channel = channel
    self.broadcast = broadcast or Broadcast(unchanged)
    self.of_server = self.theta

  def round(self, cohort, limits=None):
    self.of_server = self.theta
    self.theta = self.broadcast.send(self.theta)
    self.sent = None
    super().round(cohort, limits)

  def decoded(self, cohort, g):
    """What the server decodes of the updates of this round, by client; they are sent once."""
    if self.sent is None:
      self.sent = {i: self.channel.send(i, g[i]) for i in cohort}
    return self.sent

  def server_step(self, cohort, g, g_bar, steps, rate):
    sent = self.decoded(cohort, g)
    self.last_g = sent
    mean = self.mean(cohort, sent)
    self.theta = self.of_server
    super().server_step(cohort, sent, mean, steps, rate)
    self.theta_bar = self.of_server - mean


class FedAvg(Compressed, algorithms.FedAvg):
  """FedAvg."""


class FedExP(Compressed, methods.FedExP):
  """FedExP; the norms are those of what the server decodes."""


class FedInit(Compressed, newer.FedInit):
  """FedInit; a client knows the model that it ended with, whatever it sent."""

  def server_step(self, cohort, g, g_bar, steps, rate):
    received = self.theta
    super().server_step(cohort, g, g_bar, steps, rate)
    for i in cohort:
      self.ended[i] = received - g[i]


class FedDyn(Compressed, algorithms.FedDyn):
  """FedDyn; the server's h is the sum of what it decodes, and an h_i that of what it will get."""

  def __init__(self, *args, channel, **options):
    super().__init__(*args, channel=channel.of_sum(), **options)

  def new_h_i(self, i, g_i, steps, rate):
    return super().new_h_i(i, g_i - self.channel.lost[i], steps, rate)

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    mean = self.mean(cohort, self.decoded(cohort, g))
    return super().new_h(cohort, g, mean, steps, rate, fall_of_theta_bar)


class AdaBest(Compressed, algorithms.AdaBest):
  """AdaBest; the server's h is the series of what it decodes, a client's h_i of whole updates."""

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    assert self.by_series
    mean = self.mean(cohort, self.decoded(cohort, g))
    return super().new_h(cohort, g, mean, steps, rate, fall_of_theta_bar)


class FedCM(Compressed, methods.FedCM):
  """FedCM; g_i / (K_i eta_l) passes a second `Channel`, and the momentum a second `Broadcast`."""

  def __init__(self, *args, second_channel, second_broadcast, **options):
    super().__init__(*args, **options)
    self.second_channel = second_channel
    self.second_broadcast = second_broadcast

  def round(self, cohort, limits=None):
    self.h = self.second_broadcast.send(self.h)
    super().round(cohort, limits)

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    directions = {i: g[i] / (rate * steps[i]) for i in cohort}
    return self.mean(cohort, {i: self.second_channel.send(i, directions[i]) for i in cohort})


class Scaffold(Compressed, algorithms.Scaffold):
  """SCAFFOLD; changes of control variates pass a second `Channel`, and c a second `Broadcast`.

  A client's c_i is without what the server will never get of it, so that c remains their mean.
  """

  def __init__(self, *args, second_channel, second_broadcast=None, **options):
    super().__init__(*args, scaffold_option=2, **options)
    self.second_channel = second_channel.of_sum()
    self.second_broadcast = second_broadcast or Broadcast(unchanged)

  def round(self, cohort, limits=None):
    self.h_of_server = self.h
    self.h = self.second_broadcast.send(self.h)
    super().round(cohort, limits)

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    total = 0.0
    for i in cohort:
      change = super().new_h_i(i, g[i], steps[i], rate) - self.h_i[i]
      total = total + self.second_channel.send(i, change)
    return self.h_of_server + total / self.num_clients

  def new_h_i(self, i, g_i, steps, rate):
    return super().new_h_i(i, g_i, steps, rate) - self.second_channel.lost[i]


class TopKFedAvg(FedAvg):
  """FedAvg + top-k, by the names of the hyperparameters."""

  def __init__(self, *args, share, feedback='none', decay=1.0, **options):
    channel = Channel(functools.partial(top_k, share=share), feedback, decay)
    super().__init__(*args, channel=channel, **options)

  def state(self, i):
    return {'memory': self.channel.memory[i]}


class TopKScaffold(Scaffold):
  """SCAFFOLD + top-k, by the names of the hyperparameters."""

  def __init__(self, *args, share, feedback, scaffold_option, **options):
    assert scaffold_option == 2
    compress = functools.partial(top_k, share=share)
    super().__init__(
      *args,
      channel=Channel(compress, feedback),
      second_channel=Channel(compress, feedback),
      **options,
    )

  def state(self, i):
    return {'memory': self.channel.memory[i], 'memory_of_h': self.second_channel.memory[i]}


class TopKDownFedAvg(FedAvg):
  """FedAvg + top-k downwards, by the names of the hyperparameters."""

  def __init__(self, *args, share, **options):
    super().__init__(
      *args,
      channel=Channel(unchanged),
      broadcast=Broadcast(functools.partial(top_k, share=share)),
      **options,
    )
