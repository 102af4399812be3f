"""Where federated least squares ends up, in closed form (NumPy, float64).

Client k has the loss 1/2 ||A_k x - b_k||^2, the clients count alike. Every function takes `a`, the
matrices A_k [m_k, n], and `b`, the vectors b_k [m_k]; the m_k may differ.
"""

import numpy as np


def systems(clients):
  """The A_k and b_k of the clients of the task least_squares, in the order of their ids."""
  loaded = [clients.load(c) for c in clients.client_ids]
  return tuple([np.asarray(data[name], np.float64) for data in loaded] for name in 'xy')


def least_squares(a, b):
  """The minimiser of the mean loss."""
  return ada_best(a, b, 0.0, 0.0, 0.0)


def gradient_descent(a, b, steps, rate, mu=0.0, weights=None):
  """Where averaging the models after K_k full-gradient steps of a rate stops: FedAvg, or FedProx.

  It solves sum_k q_k M_k (A_k'A_k x - A_k'b_k) = 0, M_k = sum_{e < K_k} (I - s (A_k'A_k + mu I))^e,
  which docs/design/population.md derives. `steps` are the K_k or one number for all, `weights` the
  q_k up to a common factor. Every server optimizer rests there too.
  """
  left, right = 0.0, 0.0
  counts = np.broadcast_to(steps, len(a))
  for m, v, weight, count in zip(a, b, weights or [1.0] * len(a), counts):
    hessian, one = m.T @ m, np.eye(m.shape[1])
    step = (1 - rate * mu) * one - rate * hessian
    moves = weight * sum(np.linalg.matrix_power(step, e) for e in range(count))
    left, right = left + moves @ hessian, right + moves @ m.T @ v
  return np.linalg.solve(left, right)


def ada_best(a, b, mu, beta, x_0, server_rate=1.0):
  """Where AdaBest stops under full participation: docs/ada_best_fixed_point.md derives it.

  The minimiser of f(x) + w/2 ||x - x_0||^2 with w = mu (1 - beta) / eta, f the mean loss.
  """
  hessian = np.mean([m.T @ m for m in a], 0)
  moment = np.mean([m.T @ v for m, v in zip(a, b)], 0)
  weight = mu * (1 - beta) / server_rate
  return np.linalg.solve(hessian + weight * np.eye(len(hessian)), moment + weight * x_0)
