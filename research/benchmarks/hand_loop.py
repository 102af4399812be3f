"""A round of federated averaging written by hand: what TensorFlow itself can reach.

No TFF, no metrics, no shuffling, no unequal clients: gradients, SGD and a weighted mean, in one
graph, with several clients in work at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from . import workloads


def build(model: Any, workload: workloads.Workload) -> Callable[..., list[tf.Tensor]]:
  """The round as a TensorFlow function.

  Returns:
    `(weights, x [K, n, ...], y [K, n, ...], seeds [K]) -> weights`.
  """
  size = workload.batch_size
  batches = workload.examples // size
  # As fast as it gets for each workload: sums carried from client to client, up to ten of which
  # are in work at once, or all updates held and two clients at once.
  carries_sums = workload.name in ('W2', 'W4')

  def step(weights: list, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss = tf.reduce_mean(model.example_loss(model.forward(tuple(weights), x, True, seed), y))
    gradients = tape.gradient(loss, weights)
    return [w - workload.rate * tf.convert_to_tensor(g) for w, g in zip(weights, gradients)]

  def train(start: Sequence, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    x = tf.reshape(x, [batches, size, *x.shape[1:]])
    y = tf.reshape(y, [batches, size, *y.shape[1:]])
    steps = batches * workload.epochs
    _, weights = tf.while_loop(
      lambda i, _: i < steps,
      lambda i, weights: (
        i + 1,
        step(weights, tf.gather(x, i % batches), tf.gather(y, i % batches), tf.stack([seed, i])),
      ),
      (tf.constant(0), list(start)),
      parallel_iterations=1,
    )
    return [(new - old) * float(workload.examples) for new, old in zip(weights, start)]

  def run_round(weights: Sequence, x: tf.Tensor, y: tf.Tensor, seeds: tf.Tensor) -> list[tf.Tensor]:
    total = float(workload.examples * workload.cohort)
    if carries_sums:
      _, sums = tf.while_loop(
        lambda j, _: j < workload.cohort,
        lambda j, sums: (
          j + 1,
          [s + d for s, d in zip(sums, train(weights, x[j], y[j], seeds[j]))],
        ),
        (tf.constant(0), [tf.zeros_like(w) for w in weights]),
        parallel_iterations=10,
      )
    else:
      deltas = tf.map_fn(
        lambda client: tuple(train(weights, *client)),
        (x, y, seeds),
        parallel_iterations=2,
        fn_output_signature=tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights),
      )
      sums = [tf.reduce_sum(d, 0) for d in deltas]
    return [w + s / total for w, s in zip(weights, sums)]

  return tf.function(run_round, autograph=False)
