"""A round of federated averaging written by hand: what TensorFlow itself can reach.

No TFF, no metrics, no shuffling, no unequal clients: gradients, SGD and a weighted mean, in one
graph, with several clients in work at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from . import workloads


@tf.custom_gradient
def _recurrence(z: tf.Tensor, r: tf.Tensor) -> tuple[tf.Tensor, Callable]:
  """Outputs of an LSTM from its inputs' share of the gates; the weight gradient is one product."""
  steps, units = z.shape[0], r.shape[0]
  zero = tf.zeros([z.shape[1], units])
  h = c = zero
  hs, cs, gates = [zero], [zero], []
  for z_t in tf.unstack(z):
    i, f, g, o = tf.split(z_t + tf.matmul(h, r), 4, -1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    c = f * c + i * g
    t = tf.tanh(c)
    h = o * t
    hs.append(h)
    cs.append(c)
    gates.append((i, f, g, o, t))

  def gradient(d_outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    dh = dc = zero
    dzs = [None] * steps
    for step, d in reversed(list(enumerate(tf.unstack(d_outputs)))):
      i, f, g, o, t = gates[step]
      dh = dh + d
      dc = dc + dh * o * (1 - t * t)
      parts = [dc * g * i * (1 - i), dc * cs[step] * f * (1 - f), dc * i * (1 - g * g)]
      dzs[step] = tf.concat([*parts, dh * t * o * (1 - o)], -1)
      dh, dc = tf.matmul(dzs[step], r, transpose_b=True), dc * f
    rows = tf.reshape(tf.stack(dzs), [-1, 4 * units])
    return tf.stack(dzs), tf.matmul(tf.concat(hs[:-1], 0), rows, transpose_a=True)

  return tf.stack(hs[1:]), gradient


def _lstm_loss(weights: Sequence[tf.Tensor], x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  """Mean token loss of W3's model, one client at a time, as one would write it by hand."""
  embedding, k1, r1, b1, k2, r2, b2, kernel, bias = weights
  h = tf.gather(embedding, tf.transpose(x))
  for k, r, b in ((k1, r1, b1), (k2, r2, b2)):
    steps, batch, size = h.shape
    z = tf.reshape(tf.matmul(tf.reshape(h, [-1, size]), k) + b, [steps, batch, -1])
    h = _recurrence(z, r)
  logits = tf.matmul(tf.reshape(h, [-1, h.shape[-1]]), kernel) + bias
  labels = tf.reshape(tf.transpose(y), [-1])
  return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def build(model: Any, workload: workloads.Workload) -> Callable[..., list[tf.Tensor]]:
  """The round as a TensorFlow function.

  Returns:
    `(weights, x [K, n, ...], y [K, n, ...], seeds [K]) -> weights`.
  """
  size = workload.batch_size
  batches = workload.examples // size
  # As fast as it gets for each workload: sums carried from client to client, up to ten of which
  # are in work at once, or all updates held and two clients at once.
  carries_sums = workload.name in ('W2', 'W3', 'W4')

  def step(weights: list, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
      tape.watch(weights)
      if workload.name == 'W3':
        loss = _lstm_loss(weights, x, y)
      else:
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
