"""Synthetic(alpha, beta): classification in which clients' models and inputs differ.

The problem is from "LEAF: A Benchmark for Federated Settings" (Caldas et al., 2018) and "Federated
Optimization in Heterogeneous Networks" (Li et al., 2020), section 5.1. The data are drawn as in
the published code of the second paper, `data/synthetic_*/generate_*.py`.
"""

import functools

import numpy as np

from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.models import layers

DIMENSION = 60
CLASSES = 10
_TRAIN_SHARE = 0.9


def load(
  seed: int = 0, alpha: float = 1.0, beta: float = 1.0, iid: bool = False, num_clients: int = 30
) -> task_lib.Task:
  """Draws the clients of synthetic(alpha, beta).

  Client k has y = argmax(W_k x + b_k). The entries of W_k and b_k are normal with mean u_k and
  variance 1. x is normal with mean v_k and variance j^-1.2 in dimension j of 60. The entries of v_k
  are normal with mean B_k and variance 1. u_k is N(0, alpha^2), and B_k is N(0, beta^2).

  Args:
    seed: The seed of all draws.
    alpha: How much the clients' models differ, as a standard deviation.
    beta: How much the means of the clients' inputs differ, as a standard deviation.
    iid: Whether all clients have the same true model and inputs of the same distribution. If so,
      alpha and beta have no effect, as in the published code.
    num_clients: Number of clients. Each has 50 examples plus a log-normal number, whose logarithm
      has mean 4 and deviation 2.

  Returns:
    The task. Nine tenths of each client's examples are for training. `test_clients` has the other
    tenth of each client, and `validation` all of these together. The model is logistic regression.

  Raises:
    tasks.DataError: If an option is out of range.
  """
  for option, value in (('alpha', alpha), ('beta', beta)):
    errors.check_range(option, value, 0, 1000)
  errors.check_range('num_clients', num_clients, 1, 10_000)
  # The second number keeps the streams of different uses of one seed apart.
  rng = np.random.default_rng([seed, 31])
  sizes = rng.lognormal(4, 2, num_clients).astype(int) + 50
  # The order of draws is part of the task.
  u = rng.normal(0, alpha, num_clients)
  big_b = rng.normal(0, beta, num_clients)
  shared_w = rng.normal(size=[DIMENSION, CLASSES])
  shared_b = rng.normal(size=CLASSES)
  deviation = np.arange(1, DIMENSION + 1) ** -0.6
  train = {}
  test = {}
  for k, size in enumerate(sizes):
    if iid:
      w = shared_w
      b = shared_b
      mean = np.zeros(DIMENSION)
    else:
      w = rng.normal(u[k], 1, [DIMENSION, CLASSES])
      b = rng.normal(u[k], 1, CLASSES)
      mean = rng.normal(big_b[k], 1, DIMENSION)
    drawn = rng.normal(mean, deviation, [size, DIMENSION])
    y = np.argmax(drawn @ w + b, 1).astype(np.int32)
    x = drawn.astype(np.float32)
    count = int(_TRAIN_SHARE * size)
    name = f'{k:05d}'
    train[name] = (x[:count], y[:count])
    test[name] = (x[count:], y[count:])
  source = f'alpha = {alpha:g}, beta = {beta:g}, drawn with seed {seed}'
  if iid:
    source = f'IID, {source}'
  held_out = task_lib.InMemoryClientData(test)
  return task_lib.Task(
    name='synthetic',
    build_model=functools.partial(layers.perceptron, widths=[DIMENSION, CLASSES]),
    train=task_lib.InMemoryClientData(train),
    validation=held_out.load_all(),
    test_clients=held_out,
    source=source,
  )
