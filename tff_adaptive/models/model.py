"""Models as pure functions of (weights, batch, seed)."""

import collections
import concurrent.futures as futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.devices import threads

MetricFn: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None, salt: int) -> tf.Tensor:
  """Applies inverted dropout with a mask that is a pure function of the seed.

  Args:
    x: Activations, float [B, ...], or [G, B, ...] for a group of G clients.
    rate: Probability that an activation is dropped, in [0, 1); checked only if a seed is given.
    seed: int32 [2], or [G, 2] with one seed for each client, or None for no dropout.
    salt: An integer that differs between the dropout layers of one model.

  Returns:
    A tensor like `x`. Activations that are not dropped are scaled by 1 / (1 - rate).
  """
  if seed is None or rate == 0:
    return x
  if not 0 < rate < 1:
    raise ValueError(f'dropout rate is {rate}; it must lie in [0, 1)')

  shape = tf.shape(x)[seed.shape.rank - 1 :]

  u = with_seed(lambda s: tf.random.stateless_uniform(shape, salted(s, salt)), seed)
  return tf.where(u >= rate, x * tf.cast(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))


def salted(seed: tf.Tensor, salt: int) -> tf.Tensor:
  """Returns a seed, int32 [2], that is derived from `seed` (int32 [2]) and the integer `salt`."""
  return tf.stack([seed[0], seed[1] ^ (0x5BD1E995 & (salt * 0x9E3779B1))])


def with_seed(draw: Callable[[tf.Tensor], tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
  """Draws with one seed, int32 [2], or with one seed for each of G clients, int32 [G, 2].

  The draws of G clients are stacked to [G, ...]. Each client gets what it would draw alone.
  """
  return draw(seed) if seed.shape.rank == 1 else tf.stack([draw(s) for s in tf.unstack(seed)])


class Model(tff.learning.models.FunctionalModel):
  """A functional TFF model that also takes a seed and per-example weights.

  This package's algorithms use `loss_and_metrics`, which is a pure function. TFF's own algorithms
  can train the model too, with two differences: dropout draws from TensorFlow's stateful generator,
  and the `penalty` is left out, because TFF's loss does not get the weights.
  """

  def __init__(
    self,
    *,
    initial_weights: Sequence[np.ndarray],
    forward: Callable[[Any, Any, bool, tf.Tensor | None], Any],
    example_loss: Callable[[Any, Any], tf.Tensor],
    x_spec: tf.TensorSpec,
    y_spec: tf.TensorSpec,
    metrics: Mapping[str, MetricFn] | None = None,
    penalty: Callable[[Any], tf.Tensor] | None = None,
    client_axis: bool = False,
    couples_examples: bool = False,
    features: Callable[[Any, Any, bool, tf.Tensor | None], Any] | None = None,
  ) -> None:
    """Creates the model.

    Args:
      initial_weights: Trainable weights, float arrays of any shapes.
      forward: `(weights, x, training, seed) -> predictions`. `weights` is a tuple of tensors, `x`
        is [B, ...], `training` a bool, and `seed` an int32 [2] tensor, or None for no dropout.
      example_loss: `(predictions, y) -> [B]`, one loss for each example.
      x_spec: Spec of a batch of features, leading dimension None.
      y_spec: Spec of a batch of labels, leading dimension None.
      metrics: By name, `(predictions, y) -> (numerator [B], denominator [B])`. A metric is the sum
        of the numerators divided by the sum of the denominators. A denominator of None means 1. The
        metric 'loss' always exists.
      penalty: Optional `weights -> scalar`, such as an L2 term, which the training loss includes.
      client_axis: Whether the functions above also accept a leading axis for G clients: weights
        [G, ...], x [G, B, ...], seed [G, 2], losses [G, B], penalty [G].
      couples_examples: Whether an example's loss or metric depends on the other examples of its
        batch, as Cox's partial likelihood does. `example_loss` and the metrics then take a third
        argument, bool [B] (or [G, B]), which is False for padding. An evaluation takes all its
        examples, or all examples of one client, as one batch. Training metrics, and TFF's own
        evaluations, are computed batch by batch.
      features: Like `forward`, but returns the input of the last layer, [B, size]; for algorithms
        that compare features, such as MOON. It is called for one client at a time.

    Raises:
      ValueError: If a metric is called 'loss' or the specs have a fixed batch dimension.
    """
    metrics = dict(metrics or {})
    if 'loss' in metrics:
      raise ValueError("a metric is called 'loss'; that name is taken by the mean loss")
    for name, spec in (('x_spec', x_spec), ('y_spec', y_spec)):
      if spec.shape.rank is None or spec.shape.rank < 1 or spec.shape[0] is not None:
        raise ValueError(f'{name} is {spec}; its leading (batch) dimension must be None')
    if couples_examples:
      example_loss = _of_all(example_loss, y_spec.shape.rank)
      metrics = {name: _of_all(fn, y_spec.shape.rank) for name, fn in metrics.items()}
    self.forward = forward
    self.example_loss = example_loss
    self.penalty = penalty
    self.metric_fns = metrics
    self.couples_examples = couples_examples
    self.metric_names = ('loss', *metrics)
    self.client_axis = client_axis
    self._features = features

    @tf.function
    def predict_on_batch(model_weights: Any, x: Any, training: bool) -> Any:
      seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32) if training else None
      return forward(tuple(model_weights[0]), x, training, seed)

    def loss_fn(output: Any, label: Any, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
      losses, shares = example_loss(output, label), None
      if sample_weight is not None:
        shares = tf.math.divide_no_nan(sample_weight, tf.reduce_sum(sample_weight))
      mean = _mean(losses, shares)
      # TFF's loops also train on batches without examples. Their mean loss is 0, not 0 / 0.
      mean = tf.where(tf.size(losses) > 0, mean, tf.zeros_like(mean))
      return self.batch_loss(mean, label, shares)

    @tf.function
    def initialize_metrics() -> collections.OrderedDict:
      return collections.OrderedDict((n, tf.zeros([2])) for n in self.metric_names)

    @tf.function
    def update_metrics(
      state: Any, labels: Any, batch_output: Any, sample_weight: tf.Tensor | None = None
    ) -> collections.OrderedDict:
      del sample_weight  # TFF's loops give none.
      predictions = batch_output.predictions
      losses = example_loss(predictions, labels)
      pairs = {'loss': (losses, tf.ones_like(losses))}
      pairs.update((name, fn(predictions, labels)) for name, fn in metrics.items())
      return collections.OrderedDict(
        (name, state[name] + tf.stack([_sum(numerator), _sum(denominator, numerator)]))
        for name, (numerator, denominator) in pairs.items()
      )

    super().__init__(
      initial_weights=(tuple(initial_weights), ()),
      predict_on_batch_fn=predict_on_batch,
      loss_fn=loss_fn,
      metrics_fns=(initialize_metrics, update_metrics, tf.function(finalize_metrics)),
      input_spec=collections.OrderedDict(x=x_spec, y=y_spec),
    )

  @property
  def num_parameters(self) -> int:
    """The number of trainable scalars."""
    return int(sum(np.size(w) for w in self.initial_weights[0]))

  def features(self, weights: Any, x: Any, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    """Returns the input of the last layer, [B, size]; the arguments are those of `forward`.

    Raises:
      ValueError: If the model was built without `features`.
    """
    if self._features is None:
      raise ValueError(
        'the model gives no features of its examples, which this algorithm compares: give'
        ' models.Model(features=...), a function like forward that returns the input of the last'
        ' layer.'
      )
    return self._features(tuple(weights), x, training, seed)

  def batch_loss(self, mean_loss: tf.Tensor, y: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
    """Returns the loss of a batch without the penalty: `mean_loss`, unless a subclass overrides it.

    Args:
      mean_loss: The mean of the examples' losses, a scalar, or [G] for a group of G clients.
      y: Labels [B, ...], or [G, B, ...].
      shares: Each example's share in the means, or None; see `loss_and_metrics`.
    """
    del y, shares
    return mean_loss

  def loss_and_metrics(
    self,
    weights: Sequence[tf.Tensor],
    x: tf.Tensor,
    y: tf.Tensor,
    *,
    shares: tf.Tensor | None = None,
    training: bool = True,
    seed: tf.Tensor | None = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss of a batch and the means of its metrics.

    Args:
      weights: Trainable weights, a tuple of tensors.
      x: Features [B, ...].
      y: Labels [B, ...].
      shares: Optional float32 [B], each example's share in the means: 0 for padding, and 1 / n
        for each of the n other examples. With None all examples count the same.
      training: Whether dropout is on.
      seed: int32 [2], or None for no dropout.

    Returns:
      `(loss, means)`: the scalar `batch_loss`, in training plus the penalty, and float32 [2 M], the
      mean numerator and denominator of each of M metrics. For G clients: [G] and [G, 2 M].
    """
    predictions = self.forward(tuple(weights), x, training, seed if training else None)
    return self.loss_of_predictions(predictions, weights, y, shares=shares, training=training)

  def loss_of_predictions(
    self,
    predictions: Any,
    weights: Sequence[tf.Tensor],
    y: tf.Tensor,
    *,
    shares: tf.Tensor | None = None,
    training: bool = True,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same as `loss_and_metrics`, from the predictions at the weights."""
    known = (
      (predictions, y)
      if not self.couples_examples or shares is None
      else (predictions, y, shares > 0)
    )
    losses = self.example_loss(*known)
    mean_loss = _mean(losses, shares)
    means = [mean_loss, tf.ones_like(mean_loss)]
    for fn in self.metric_fns.values():
      numerator, denominator = fn(*known)
      means.append(_mean(numerator, shares))
      means.append(tf.ones_like(mean_loss) if denominator is None else _mean(denominator, shares))
    means = tf.stack([tf.cast(m, tf.float32) for m in means], axis=-1)
    loss = self.batch_loss(mean_loss, y, shares)
    if self.penalty is not None and training:
      loss += self.penalty(tuple(weights))
    return loss, means

  def unpack_metrics(self, sums: tf.Tensor) -> collections.OrderedDict:
    """Splits metric sums [..., 2 M], ordered as in `loss_and_metrics`, to [..., 2] by name."""
    pairs = tf.reshape(sums, [*sums.shape[:-1], len(self.metric_names), 2])
    return collections.OrderedDict(zip(self.metric_names, tf.unstack(pairs, axis=-2)))


def _of_all(function: Callable, rank: int) -> Callable:
  """Makes the third argument, bool [B], of a loss or metric optional; by default it is all True."""

  def of_counted(predictions: Any, y: tf.Tensor, counts: tf.Tensor | None = None) -> Any:
    if counts is None:
      counts = tf.ones(tf.shape(y)[: len(y.shape) - rank + 1], tf.bool)
    return function(predictions, y, counts)

  return of_counted


def _sum(values: tf.Tensor | None, like: tf.Tensor | None = None) -> tf.Tensor:
  values = tf.ones_like(like) if values is None else values
  return tf.reduce_sum(tf.cast(values, tf.float32))


def _mean(values: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
  values = tf.cast(values, tf.float32) if values.dtype.is_integer else values
  if shares is None:
    return tf.reduce_mean(values, axis=-1)
  return tf.reduce_sum(values * tf.cast(shares, values.dtype), axis=-1)


def finalize_metrics(sums: Mapping[str, tf.Tensor]) -> collections.OrderedDict:
  """Divides each metric's sums [numerator, denominator]; returns values by name. x / 0 gives 0."""
  return collections.OrderedDict(
    (name, tf.math.divide_no_nan(pair[0], pair[1])) for name, pair in sums.items()
  )


def accuracy(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
  """Computes top-1 accuracy, a metric of `Model`, from scores [..., classes] and labels [...]."""
  classes = tf.argmax(predictions, -1, output_type=tf.int32)
  hit = tf.cast(tf.equal(classes, tf.cast(y, tf.int32)), tf.float32)
  return hit, None


def sparse_cross_entropy(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  """Returns each example's softmax cross-entropy of logits [..., classes] and labels [...]."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)


def build_evaluation(model: Model, batch_size: int = 500) -> Callable[[Any, Any], dict[str, float]]:
  """Builds the centralised evaluation of a model on arrays of examples.

  Args:
    model: The model.
    batch_size: Number of examples evaluated at once. With `couples_examples` it is ignored.

  Returns:
    `(weights, data) -> {metric: float}`. `weights` are the trainable weights (tensors or arrays).
    `data` is an `OrderedDict(x=array[n, ...], y=array[n, ...])`, n >= 1, cast to the model's types.
  """

  weight_specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0])

  @tf.function(input_signature=(weight_specs, *model.input_spec.values()), autograph=False)
  def batch_sums(weights: Any, x: tf.Tensor, y: tf.Tensor) -> collections.OrderedDict:
    _, means = model.loss_and_metrics(weights, x, y, training=False)
    return model.unpack_metrics(means * tf.cast(tf.shape(y)[0], tf.float32))

  def evaluate(weights: Any, data: Any) -> dict[str, float]:
    weights = tuple(tf.convert_to_tensor(w) for w in weights)
    n = len(data['y'])
    if n == 0:
      raise ValueError('the evaluation data are empty: at least one example is needed')
    size = n if model.couples_examples else batch_size

    def sums_from(start: int) -> dict[str, np.ndarray]:
      batch = (
        tf.cast(data[name][start : start + size], spec.dtype)
        for name, spec in model.input_spec.items()
      )
      return {k: np.asarray(v, np.float64) for k, v in batch_sums(weights, *batch).items()}

    # In parallel, as an operation may have one thread; sums are added in order, for equal bits.
    with futures.ThreadPoolExecutor(threads.side_by_side()) as pool:
      batches = list(pool.map(sums_from, range(0, n, size)))
    total = {k: sum((sums[k] for sums in batches), np.zeros(2)) for k in batches[0]}
    return {k: float(v[0] / v[1]) if v[1] else 0.0 for k, v in total.items()}

  return evaluate
