"""Where algorithms stop on federated least squares, in closed form.

Client k has the loss f_k(x) = 1/2 ||A_k x - b_k||^2. `a` has the matrices A_k [m_k, n], `b` the
vectors b_k [m_k]; the m_k may differ. Clients count by p_k, which sum to 1, and all take part in
every round.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


def minimiser(a: Arrays, b: Arrays) -> np.ndarray:
  """Returns the minimiser of the mean of the f_k."""
  return ada_best(a, b, 0.0, 0.0, np.zeros(a[0].shape[1]))


def gradient_descent(
  a: Arrays,
  b: Arrays,
  steps: Sequence[int],
  rate: float,
  weights: Sequence[float] | None = None,
  mu: float = 0.0,
) -> np.ndarray:
  """Returns where averaging the models after K_k full-gradient steps stops, as in FedAvg.

  It solves sum_k p_k M_k (A_k'A_k x - A_k'b_k) = 0, M_k = sum_{e < K_k} (I - s A_k'A_k)^e, which
  docs/design/population.md derives for all q_k = 1. With mu it is FedProx's point: A_k'A_k + mu I
  takes the place of A_k'A_k in M_k.

  Args:
    a: The A_k.
    b: The b_k.
    steps: The K_k.
    rate: s.
    weights: The p_k; by default clients count alike.
    mu: That of FedProx's proximal term.
  """
  if weights is None:
    weights = [1 / len(a)] * len(a)
  left: Any = 0.0
  right: Any = 0.0
  for m, v, count, weight in zip(a, b, steps, weights):
    hessian = m.T @ m
    identity = np.eye(len(hessian))
    step = identity - rate * (hessian + mu * identity)
    moves = weight * sum(np.linalg.matrix_power(step, e) for e in range(count))
    left = left + moves @ hessian
    right = right + moves @ m.T @ v
  return np.linalg.solve(left, right)


def ada_best(
  a: Arrays, b: Arrays, mu: float, beta: float, x_0: np.ndarray, server_rate: float = 1.0
) -> np.ndarray:
  """Returns where AdaBest stops if clients count alike: docs/ada_best_fixed_point.md derives it.

  The minimiser of f(x) + w/2 ||x - x_0||^2 with w = mu (1 - beta) / eta, f the mean of the f_k.
  """
  hessian = np.mean([m.T @ m for m in a], 0)
  moment = np.mean([m.T @ v for m, v in zip(a, b)], 0)
  weight = mu * (1 - beta) / server_rate
  return np.linalg.solve(hessian + weight * np.eye(len(hessian)), moment + weight * x_0)
