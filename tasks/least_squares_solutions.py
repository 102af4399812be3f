"""Where federated least squares ends up, in closed form (NumPy, float64).

Client k = 1 ... K has the loss f_k(x) =
1/2 ||A_k x - b_k||^2, the clients count alike, and f is the mean of the f_k. Every function
takes `a`, the K matrices A_k [m_k, n], and `b`, the K vectors b_k [m_k]; the m_k may differ.

    a, b = least_squares_solutions.systems(tasks.load('least_squares', dtype='float64').train)
    x = least_squares_solutions.least_squares(a, b)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Matrices = Sequence[np.ndarray]


def systems(clients: Any) -> tuple[Matrices, Matrices]:
  """The A_k and b_k of a task's clients.

  Args:
    clients: `tasks.ClientData` of the task least_squares, or anything with `client_ids` and `load`.

  Returns:
    The matrices and the vectors in the order of the client ids, float64.
  """
  loaded = [clients.load(c) for c in clients.client_ids]
  a = [np.asarray(data['x'], np.float64) for data in loaded]
  return a, [np.asarray(data['y'], np.float64) for data in loaded]


def least_squares(a: Matrices, b: Matrices) -> np.ndarray:
  """x_LS, the minimiser of f."""
  return np.linalg.solve(*_normal_equations(a, b))


def gradient_descent(
  a: Matrices,
  b: Matrices,
  steps: int | Sequence[int],
  rate: float,
  mu: float = 0.0,
  weights: Sequence[float] | None = None,
) -> np.ndarray:
  """x_FGD: where averaging the clients' models after several local steps ends up (FedAvg).

  And where every server optimizer does that comes to rest when the mean of the clients' updates is
  0. With mu > 0 it is FedProx's point: I - s (A_k'A_k + mu I) takes the place of I - s A_k'A_k.

  It solves sum_k q_k M_k (A_k'A_k x - A_k'b_k) = 0, M_k = sum_{e < K_k} (I - s A_k'A_k)^e: for a
  small rate the minimiser of sum_k q_k K_k f_k. docs/design/population.md derives it.

  Args:
    a: The A_k.
    b: The b_k.
    steps: K_k, the full-gradient steps of client k in a round; or one number for all.
    rate: s, the client rate; averaging converges for s below 2 / (largest curvature + mu).
    mu: FedProx's weight of the proximal term.
    weights: q_k, the mean weight of client k in a round; a common factor does not matter.

  Returns:
    The fixed point, of the mean of the iterates where clients take part at random; x_LS for one
    step.
  """
  left, right = 0.0, 0.0
  counts = [steps] * len(a) if isinstance(steps, int) else steps
  for m, v, weight, count in zip(a, b, weights or [1.0] * len(a), counts):
    hessian = m.T @ m
    power, total = np.eye(len(hessian)), np.zeros_like(hessian)
    for _ in range(count):
      total = total + weight * power
      power = power @ ((1 - rate * mu) * np.eye(len(hessian)) - rate * hessian)
    left, right = left + total @ hessian, right + total @ m.T @ v
  return np.linalg.solve(left, right)


def ada_best(
  a: Matrices,
  b: Matrices,
  mu: float,
  beta: float,
  x_0: np.ndarray,
  server_rate: float = 1.0,
) -> np.ndarray:
  """Where AdaBest ends up under full participation, with constant mu > 0 and beta.

  The minimiser of f(x) + w/2 ||x - x_0||^2 with w = mu (1 - beta) / eta: a ridge towards where it
  began, whatever the clients' rate and numbers of steps. docs/ada_best_fixed_point.md derives it.

  Args:
    a: The A_k.
    b: The b_k.
    mu: Weight of the clients' estimates.
    beta: Weight of the past in the server's estimate.
    x_0: The initial model [n].
    server_rate: eta of the server's SGD; the published algorithm has 1.

  Returns:
    The fixed point [n].
  """
  hessian, moment = _normal_equations(a, b)
  weight = mu * (1 - beta) / server_rate
  return np.linalg.solve(hessian + weight * np.eye(len(hessian)), moment + weight * x_0)


def _normal_equations(a: Matrices, b: Matrices) -> tuple[np.ndarray, np.ndarray]:
  """mean_k A_k'A_k and mean_k A_k'b_k."""
  return np.mean([m.T @ m for m in a], 0), np.mean([m.T @ v for m, v in zip(a, b)], 0)
