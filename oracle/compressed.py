"""Compressed messages in plain NumPy and float64; see `oracle`."""

import collections

import numpy as np

from oracle import algorithms


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
  """

  def __init__(self, compress, feedback='none', decay=1.0):
    self.compress = compress
    self.feedback = feedback
    self.decay = decay
    self.memory = collections.defaultdict(float)  # By client.

  def send(self, client, message):
    memory = self.memory[client]
    if self.feedback == 'none':
      return self.compress(message)
    if self.feedback == 'ef21':
      self.memory[client] = memory + self.compress(message - memory)
      return self.memory[client]
    asked = self.decay * memory + message
    sent = self.compress(asked)
    self.memory[client] = asked - sent
    return sent


class FedAvg(algorithms.FedAvg):
  """FedAvg whose updates pass a `Channel`."""

  def __init__(self, *args, channel, **options):
    super().__init__(*args, **options)
    self.channel = channel

  def server_step(self, cohort, g, g_bar, steps, rate):
    sent = {i: self.channel.send(i, g[i]) for i in cohort}
    self.theta = self.server(self.theta, -self.mean(cohort, sent))


class Scaffold(algorithms.Scaffold):
  """SCAFFOLD whose updates and changes of control variates pass a `Channel` each."""

  def __init__(self, *args, channel, second_channel, **options):
    super().__init__(*args, scaffold_option=2, **options)
    self.channel = channel
    self.second_channel = second_channel

  def new_h(self, cohort, g, g_bar, steps, rate, fall_of_theta_bar):
    total = 0.0
    for i in cohort:
      change = self.new_h_i(i, g[i], steps[i], rate) - self.h_i[i]
      total = total + self.second_channel.send(i, change)
    return self.h + total / self.num_clients

  def server_step(self, cohort, g, g_bar, steps, rate):
    sent = {i: self.channel.send(i, g[i]) for i in cohort}
    self.theta = self.server(self.theta, -self.mean(cohort, sent))
