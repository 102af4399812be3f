"""A round of federated averaging as one JAX program, its clients vectorised: the limit on a GPU.

The models of W1, W3, W4 and W5, their weights drawn here; no shuffling, no metrics, equal clients.
It imports neither TensorFlow nor TFF, and so runs in an environment that has JAX alone:

  python -m research.benchmarks.vmap_loop W1 10     # 10 rounds of W1; prints seconds a round.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import workloads

_Weights = list[Any]
_Shapes = list[tuple[tuple[int, ...], float]]  # With what a vector starts from.

_FILTERS = (64, 128, 256, 512)  # Of the ResNet; two blocks each.


def build(workload: workloads.Workload) -> tuple[list[Any], Callable]:
  """Initial weights and the compiled round.

  Args:
    workload: W1, W1s, W3, W4 or W5.

  Returns:
    `(weights, run)`; `run(weights, x [K, n, ...], y [K, n, ...], seeds [K]) -> weights`.
  """
  shapes, logits = _model(workload.name)
  rng = np.random.default_rng(1)
  weights = [
    jnp.asarray(rng.normal(0, np.prod(s[:-1]) ** -0.5, s) if len(s) > 1 else start * np.ones(s))
    for s, start in shapes
  ]
  weights = [w.astype(jnp.float32) for w in weights]
  batches = workload.examples // workload.batch_size

  def loss(weights: _Weights, x: Any, y: Any, key: Any) -> Any:
    scores = jax.nn.log_softmax(logits(weights, x, key))
    return -jnp.mean(jnp.take_along_axis(scores, y[..., None], -1))

  def train(start: _Weights, x: Any, y: Any, seed: Any) -> _Weights:
    x = x.reshape(batches, workload.batch_size, *x.shape[1:])
    y = y.reshape(batches, workload.batch_size, *y.shape[1:])
    key = jax.random.PRNGKey(seed)

    def step(weights: _Weights, i: Any) -> tuple[_Weights, None]:
      j = i % batches
      g = jax.grad(loss)(weights, x[j], y[j], jax.random.fold_in(key, i))
      return [w - workload.rate * d for w, d in zip(weights, g)], None

    weights, _ = jax.lax.scan(step, start, jnp.arange(batches * workload.epochs))
    return weights

  @jax.jit
  def run(weights: _Weights, x: Any, y: Any, seeds: Any) -> _Weights:
    trained = jax.vmap(train, (None, 0, 0, 0))(weights, x, y, seeds)
    return [jnp.mean(w, 0) for w in trained]  # All clients have the same number of examples.

  return weights, run


def _model(name: str) -> tuple[_Shapes, Callable[[_Weights, Any, Any], Any]]:
  """Shapes of the weights, with the value that vectors start from, and the logits."""
  if name.startswith('W1'):
    return _with_biases((3, 3, 1, 32), (3, 3, 32, 64), (9216, 128), (128, 62)), _cnn
  if name == 'W3':
    lstms = [(8, 1024), (256, 1024), (1024,), (256, 1024), (256, 1024), (1024,)]
    return [(s, 0.0) for s in [(90, 8), *lstms, (256, 90), (90,)]], _lstm
  if name == 'W4':
    return _with_biases((784, 100), (100, 100), (100, 26)), _perceptron
  if name == 'W5':
    return _resnet_shapes(), _resnet
  raise ValueError(f'no loop in JAX for {name}; there is one for W1, W1s, W3, W4 and W5')


def _with_biases(*kernels: tuple[int, ...]) -> _Shapes:
  return [pair for k in kernels for pair in ((k, 0.0), (k[-1:], 0.0))]


def _conv(x: Any, kernel: Any, stride: int = 1, padding: str = 'SAME') -> Any:
  numbers = ('NHWC', 'HWIO', 'NHWC')
  return jax.lax.conv_general_dilated(
    x, kernel, (stride, stride), padding, dimension_numbers=numbers
  )


def _max_pool(x: Any, size: int, stride: int, padding: str) -> Any:
  window, strides = (1, size, size, 1), (1, stride, stride, 1)
  return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)


def _dropout(x: Any, rate: float, key: Any) -> Any:
  return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def _perceptron(weights: _Weights, x: Any, key: Any) -> Any:
  for i in range(0, len(weights), 2):
    x = (jax.nn.relu(x) if i else x) @ weights[i] + weights[i + 1]
  return x


def _cnn(weights: _Weights, x: Any, key: Any) -> Any:
  k1, b1, k2, b2, *dense = weights
  x = jax.nn.relu(_conv(x, k1, padding='VALID') + b1)
  x = jax.nn.relu(_conv(x, k2, padding='VALID') + b2)
  first, second = jax.random.split(key)
  x = _dropout(_max_pool(x, 2, 2, 'VALID').reshape(len(x), -1), 0.25, first)
  x = _dropout(jax.nn.relu(x @ dense[0] + dense[1]), 0.5, second)
  return x @ dense[2] + dense[3]


def _lstm(weights: _Weights, x: Any, key: Any) -> Any:
  embedding, *layers, kernel, bias = weights
  h = embedding[x.T]
  for k, r, b in (layers[:3], layers[3:]):

    def step(carried: Any, z: Any, r: Any = r) -> Any:
      h, c = carried
      i, f, g, o = jnp.split(z + h @ r, 4, -1)
      c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
      h = jax.nn.sigmoid(o) * jnp.tanh(c)
      return (h, c), h

    zero = jnp.zeros((h.shape[1], r.shape[0]))
    _, h = jax.lax.scan(step, (zero, zero), h @ k + b)
  return (h @ kernel + bias).transpose(1, 0, 2)


def _resnet_shapes() -> _Shapes:
  norm = lambda n: [((n,), 1.0), ((n,), 0.0)]  # noqa: E731
  shapes, channels = [((7, 7, 3, 64), 0.0), *norm(64)], 64
  for stage, filters in enumerate(_FILTERS):
    for block in range(2):
      shapes += norm(channels) if stage or block else []
      shapes += [((3, 3, channels, filters), 0.0), *norm(filters), ((3, 3, filters, filters), 0.0)]
      shapes += [((1, 1, channels, filters), 0.0), *norm(filters)] if channels != filters else []
      channels = filters
  return [*shapes, *norm(channels), ((channels, 100), 0.0), ((100,), 0.0)]


def _resnet(weights: _Weights, x: Any, key: Any) -> Any:
  left = iter(weights)

  def norm(x: Any) -> Any:
    scale, offset = next(left), next(left)
    grouped = x.reshape(*x.shape[:3], 2, -1)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    variance = grouped.var((1, 2, 4), keepdims=True)
    normed = (grouped - mean) * jax.lax.rsqrt(variance + 1e-3)
    return normed.reshape(x.shape) * scale + offset

  x = jax.nn.relu(norm(_conv(x, next(left), 2)))
  x = _max_pool(x, 3, 2, 'SAME')
  for stage, filters in enumerate(_FILTERS):
    for block in range(2):
      residual = jax.nn.relu(norm(x)) if stage or block else x
      residual = _conv(residual, next(left))
      residual = _conv(jax.nn.relu(norm(residual)), next(left))
      x = residual + (x if x.shape[-1] == filters else norm(_conv(x, next(left))))
  x = jax.nn.relu(norm(x)).mean((1, 2))
  return x @ next(left) + next(left)


class Rounds:
  """Rounds of a workload; the arrays are handed to JAX in each, as the other variants do."""

  def __init__(self, workload: workloads.Workload, load: Callable[[int], Any], population: int):
    self._workload, self._load, self._population = workload, load, population
    self._weights, self._run = build(workload)

  def round(self, r: int) -> list[np.ndarray]:
    """Round r; returns some weights."""
    ids = workloads.cohort(self._workload, self._population, r)
    clients = [self._load(c) for c in ids]
    x, y = (np.stack([c[key] for c in clients]) for key in ('x', 'y'))
    seeds = np.array([r * 1000 + c for c in ids], np.int32)
    self._weights = self._run(self._weights, x, y, seeds)
    return [np.asarray(self._weights[0])]


def main() -> None:
  """Times rounds of one workload."""
  workload, rounds = workloads.WORKLOADS[sys.argv[1]], int(sys.argv[2])
  pool = workload.pool
  clients = [workloads.synthetic_client(workload, c) for c in range(pool)]
  runner, seconds = Rounds(workload, lambda c: clients[c % pool], workload.population), []
  for r in range(rounds + 2):
    began = time.perf_counter()
    runner.round(r)
    seconds.append(time.perf_counter() - began)
  median = statistics.median(seconds[2:])
  print(f'{workload.name} {jax.devices()[0]}: median {median:.4f} s, first {seconds[0]:.1f} s')


if __name__ == '__main__':
  main()
