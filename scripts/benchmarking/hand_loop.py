"""A round of federated averaging written by hand: what TensorFlow itself can reach.

No TFF, no metrics, no shuffling, no unequal clients: gradients, SGD and a weighted mean, in one
graph, with two clients in work at once.
"""

import tensorflow as tf


def build(model, work):
  """The round as a TensorFlow function.

  Args:
    model: A `tff_adaptive.models.Model`; only its forward pass and loss are used.
    work: The work; every client has `work.examples` examples.

  Returns:
    `(weights, x [K, n, ...], y [K, n, ...], seeds [K]) -> weights`.
  """
  size = work.batch_size
  batches = work.examples // size
  # As fast as it gets for each work: two clients at once only where a client's own operations do
  # not fill the cores.
  parallel = 1 if work.name in ('W2', 'W3', 'W4') else 2

  def step(weights, x, y, seed):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss = tf.reduce_mean(model.example_loss(model.forward(tuple(weights), x, True, seed), y))
    gradients = tape.gradient(loss, weights)
    return [w - work.rate * tf.convert_to_tensor(g) for w, g in zip(weights, gradients)]

  def train(start, x, y, seed):
    x = tf.reshape(x, [batches, size, *x.shape[1:]])
    y = tf.reshape(y, [batches, size, *y.shape[1:]])
    steps = batches * work.epochs
    _, weights = tf.while_loop(
      lambda i, _: i < steps,
      lambda i, weights: (
        i + 1,
        step(weights, tf.gather(x, i % batches), tf.gather(y, i % batches), tf.stack([seed, i])),
      ),
      (tf.constant(0), list(start)),
      parallel_iterations=1,
    )
    return [(new - old) * float(work.examples) for new, old in zip(weights, start)]

  def run_round(weights, x, y, seeds):
    total = float(work.examples * work.cohort)
    if parallel == 1:
      _, sums = tf.while_loop(
        lambda j, _: j < work.cohort,
        lambda j, sums: (
          j + 1,
          [s + d for s, d in zip(sums, train(weights, x[j], y[j], seeds[j]))],
        ),
        (tf.constant(0), [tf.zeros_like(w) for w in weights]),
      )
    else:
      deltas = tf.map_fn(
        lambda client: tuple(train(weights, *client)),
        (x, y, seeds),
        parallel_iterations=parallel,
        fn_output_signature=tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights),
      )
      sums = [tf.reduce_sum(d, 0) for d in deltas]
    return [w + s / total for w, s in zip(weights, sums)]

  return tf.function(run_round, autograph=False)
