"""Federated averaging in FedJAX, with its own for-each-client backend (jit).

usage: PYTHON fedjax_rounds.py WORKLOAD
"""

from collections.abc import Callable
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import serving
from fedjax.algorithms import fed_avg


def main() -> None:
  """Does rounds until standard input closes."""
  workload = serving.workload()
  pool = workload.pool
  datasets = [
    fedjax.ClientDataset(dict(serving.workloads.synthetic_client(workload, client)))
    for client in range(pool)
  ]
  init, predict, losses = _MODELS[workload.name[:2]]
  model = fedjax.Model(
    init,
    lambda weights, batch, rng: predict(weights, batch['x'], rng),
    lambda weights, batch: predict(weights, batch['x'], None),
    lambda batch, predictions: losses(predictions, batch['y']),
    {},
  )
  algorithm = fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(workload.rate),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(workload.batch_size, num_epochs=workload.epochs),
  )
  state = algorithm.init(model.init(jax.random.PRNGKey(1)))

  def do_round(r: int) -> None:
    nonlocal state
    ids = serving.workloads.cohort(workload, workload.population, r)
    keys = jax.random.split(jax.random.PRNGKey(r), len(ids))
    cohort = [(b'%d' % c, datasets[c % pool], key) for c, key in zip(ids, keys)]
    state, _ = algorithm.apply(state, cohort)
    jax.block_until_ready(state.params)

  serving.serve(do_round)


def _dense(inputs: int, outputs: int) -> list[jax.Array]:
  """A layer's kernel and bias, with Glorot's uniform distribution."""
  limit = np.sqrt(6 / (inputs + outputs))
  kernel = np.random.default_rng(inputs).uniform(-limit, limit, (inputs, outputs))
  return [jnp.asarray(kernel, jnp.float32), jnp.zeros(outputs)]


def _cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
  """[B, ..., classes] and [B, ...] -> [B]."""
  picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1)[..., 0]
  return -picked.reshape(len(picked), -1).mean(1)


def _dropout(x: jax.Array, share: float, key: jax.Array | None) -> jax.Array:
  if key is None:
    return x
  return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0)


def _cnn_init(rng: jax.Array) -> list[jax.Array]:
  one, two = _dense(9, 32)[0].reshape(3, 3, 1, 32), _dense(288, 64)[0].reshape(3, 3, 32, 64)
  return [one, jnp.zeros(32), two, jnp.zeros(64), *_dense(9216, 128), *_dense(128, 62)]


def _cnn(weights: list[jax.Array], x: jax.Array, rng: jax.Array | None) -> jax.Array:
  keys: Any = (None, None) if rng is None else jax.random.split(rng)
  for kernel, bias in (weights[:2], weights[2:4]):
    layout = ('NHWC', 'HWIO', 'NHWC')
    x = jax.lax.conv_general_dilated(x, kernel, (1, 1), 'VALID', dimension_numbers=layout)
    x = jax.nn.relu(x + bias)
  x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')
  x = _dropout(x, 0.25, keys[0]).reshape(len(x), -1)
  x = _dropout(jax.nn.relu(x @ weights[4] + weights[5]), 0.5, keys[1])
  return x @ weights[6] + weights[7]


def _mlp(weights: list[jax.Array], x: jax.Array, rng: jax.Array | None) -> jax.Array:
  for kernel, bias in (weights[:2], weights[2:4]):
    x = jax.nn.relu(x @ kernel + bias)
  return x @ weights[4] + weights[5]


def _lstm_init(rng: jax.Array) -> list[jax.Array]:
  layers = [_dense(8 + 256, 1024), _dense(256 + 256, 1024)]
  return [_dense(90, 8)[0], *layers[0], *layers[1], *_dense(256, 90)]


def _lstm(weights: list[jax.Array], x: jax.Array, rng: jax.Array | None) -> jax.Array:
  h = jnp.swapaxes(weights[0][x], 0, 1)
  for kernel, bias in (weights[1:3], weights[3:5]):
    inputs, recurrent = kernel[:-256], kernel[-256:]

    def step(carry: Any, z: jax.Array, recurrent: jax.Array = recurrent) -> Any:
      h, c = carry
      i, f, g, o = jnp.split(z + h @ recurrent, 4, -1)
      c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
      h = jax.nn.sigmoid(o) * jnp.tanh(c)
      return (h, c), h

    zero = jnp.zeros((h.shape[1], 256))
    _, h = jax.lax.scan(step, (zero, zero), h @ inputs + bias)
  return jnp.swapaxes(h, 0, 1) @ weights[5] + weights[6]


def _tags(weights: list[jax.Array], x: jax.Array, rng: jax.Array | None) -> jax.Array:
  return x @ weights[0] + weights[1]


def _binary_cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
  return (jax.nn.softplus(logits) - logits * y).mean(-1)


_MODELS: dict[str, tuple[Callable, Callable, Callable]] = {
  'W1': (_cnn_init, _cnn, _cross_entropy),
  'W2': (lambda rng: _dense(10000, 500), _tags, _binary_cross_entropy),
  'W3': (_lstm_init, _lstm, _cross_entropy),
  'W4': (
    lambda rng: [*_dense(784, 100), *_dense(100, 100), *_dense(100, 26)],
    _mlp,
    _cross_entropy,
  ),
}

if __name__ == '__main__':
  main()
