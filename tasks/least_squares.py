"""Federated least squares, the smallest problem that shows client drift."""

import functools
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.models import layers

_MOST_NUMBERS = 20_000_000  # 160 MB while they are drawn.


def load(
  seed: int = 0,
  num_clients: int = 5,
  rows: int = 20,
  columns: int = 5,
  unlikeness: float = 1.0,
  dtype: Literal['float32', 'float64'] = 'float32',
) -> task_lib.Task:
  """Draws a problem in which client k has the loss 1/2 ||A_k w - b_k||^2 for weights w.

  A_k has independent normal entries of variance 1 / rows; its columns are scaled by factors from
  0.5 to 1.5. b_k = A_k (w* + unlikeness u_k) + 0.1 e_k, where w*, u_k and e_k are standard normal.

  Args:
    seed: The seed of all draws.
    num_clients: Number of clients.
    rows: Number of examples of each client. A batch of this size has all of a client's examples.
    columns: Number of weights.
    unlikeness: Standard deviation of the clients' own solutions around a common one.
    dtype: The dtype of data and weights, 'float32' or 'float64'.

  Returns:
    The task. x has the rows of A, and y is b. The weights are one array [columns]. The validation
    data are all clients' rows, and the metric is the loss, a mean over rows.

  Raises:
    tasks.DataError: If an option is out of range.
  """
  for option, value in (('num_clients', num_clients), ('rows', rows), ('columns', columns)):
    errors.check_range(option, value, 1, _MOST_NUMBERS)
  product = num_clients * rows * columns
  errors.check_range('num_clients times rows times columns', product, 1, _MOST_NUMBERS)
  errors.check_range('unlikeness', unlikeness, 0, 1e6)
  rng = np.random.default_rng([seed, 9])
  a = rng.standard_normal([num_clients, rows, columns]) / np.sqrt(rows)
  # Each client has its own curvatures, which corrections have to cope with.
  a *= rng.uniform(0.5, 1.5, [num_clients, 1, columns])
  target = rng.standard_normal(columns)
  targets = target + unlikeness * rng.standard_normal([num_clients, columns])
  b = np.einsum('krc,kc->kr', a, targets) + 0.1 * rng.standard_normal([num_clients, rows])
  x = a.reshape(-1, columns).astype(dtype)
  y = b.reshape(-1).astype(dtype)
  indices = np.split(np.arange(len(y)), num_clients)
  return task_lib.Task(
    name='least_squares',
    build_model=functools.partial(build_model, columns=columns, dtype=dtype),
    train=task_lib.InMemoryClientData.from_partition(x, y, indices),
    validation=task_lib.example_arrays(x, y),
    source=f'drawn with seed {seed}',
    metric='loss',
  )


def build_model(seed: int, columns: int = 5, dtype: str = 'float32') -> layers.SummedLossModel:
  """Builds linear regression without intercept; a batch (x, y) has the loss 1/2 ||x w - y||^2."""
  start = np.random.default_rng([seed, 28]).standard_normal(columns).astype(dtype)

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    return tf.linalg.matvec(x, weights[0])

  def half_square(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(predictions, y) / 2

  return layers.SummedLossModel(
    initial_weights=(start,),
    forward=forward,
    example_loss=half_square,
    x_spec=tf.TensorSpec([None, columns], dtype),
    y_spec=tf.TensorSpec([None], dtype),
    client_axis=True,
  )
