"""Models as pure functions of (weights, batch, seed)."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import metric_names
from tff_adaptive.models.sum_metrics import SumMetric, counted, counted_metric

if TYPE_CHECKING:
  from tff_adaptive.models import named_metrics

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

  # Of one client: `with_seed` stacks the masks of a group.
  shape = tf.shape(x)[seed.shape.rank - 1 :]

  u = with_seed(lambda s: tf.random.stateless_uniform(shape, salted(s, salt)), seed)
  return tf.where(u >= rate, x * tf.cast(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))


def salted(seed: tf.Tensor, salt: int) -> tf.Tensor:
  """Returns a seed, int32 [2], that is derived from `seed` (int32 [2]) and the integer `salt`."""
  # The product spreads small salts over many bits, and the mask keeps those that int32 holds.
  return tf.stack([seed[0], seed[1] ^ (0x5BD1E995 & (salt * 0x9E3779B1))])


def with_seed(draw: Callable[[tf.Tensor], tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
  """Draws with one seed, int32 [2], or with one seed for each of G clients, int32 [G, 2].

  The draws of G clients are stacked to [G, ...]. Each client gets what it would draw alone.
  """
  if seed.shape.rank == 1:
    return draw(seed)
  return tf.stack([draw(of_client) for of_client in tf.unstack(seed)])


class Model(tff.learning.models.FunctionalModel):
  """A functional TFF model that also takes a seed and per-example weights.

  This package's algorithms use `loss_and_metrics`, which is a pure function. TFF's own algorithms
  can train the model too, with these differences: dropout draws from TensorFlow's stateful
  generator, the `penalty` is left out, because TFF's loss does not get the weights, and so are
  class weights.

  Attributes:
    metric_names: The names of all metrics, in the order of evaluations.
    metric_fns: The metrics that are ratios of two sums, by name. Training computes them too.
    sum_metrics: The other metrics by name, which only evaluations compute.
    trained_metric_names: 'loss' and the names in `metric_fns`.
    outputs: What predictions mean, for metrics by name; None if that is not known.
    statistics: For each weight whether it is a moving statistic; () if there is none.
    class_weights: None, or the factor of the training loss for each class; see `with_class_weight`.
  """

  outputs: 'named_metrics.Outputs | None' = None
  statistics: tuple[bool, ...] = ()
  class_weights: tuple[float, ...] | None = None

  def __init__(
    self,
    *,
    initial_weights: Sequence[np.ndarray],
    forward: Callable[[Any, Any, bool, tf.Tensor | None], Any],
    example_loss: Callable[[Any, Any], tf.Tensor],
    x_spec: tf.TensorSpec,
    y_spec: tf.TensorSpec,
    metrics: Mapping[str, MetricFn | SumMetric] | None = None,
    penalty: Callable[[Any], tf.Tensor] | None = None,
    client_axis: bool = False,
    couples_examples: bool = False,
    outputs: 'named_metrics.Outputs | None' = None,
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
        metric 'loss' always exists. A metric that is another function of sums is a `SumMetric`.
      penalty: Optional `weights -> scalar`, such as an L2 term, which the training loss includes.
      client_axis: Whether the functions above also accept a leading axis for G clients: weights
        [G, ...], x [G, B, ...], seed [G, 2], losses [G, B], penalty [G].
      couples_examples: Whether an example's loss or metric depends on the other examples of its
        batch, as Cox's partial likelihood does. `example_loss` and the metrics then take a third
        argument, bool [B] (or [G, B]), which is False for padding. An evaluation takes all its
        examples, or all examples of one client, as one batch. Training metrics, and TFF's own
        evaluations, are computed batch by batch.
      outputs: What predictions mean, so that `with_metrics` can add metrics by name.
      features: Like `forward`, but returns the input of the last layer, [B, size]; for algorithms
        that compare features, such as MOON. It is called for one client at a time.

    Raises:
      ValueError: If a metric is called 'loss', a metric's name contradicts its direction, or the
        specs have a fixed batch dimension.
    """
    metrics = dict(metrics or {})
    if 'loss' in metrics:
      raise ValueError("a metric is called 'loss'; that name is taken by the mean loss")
    for name, spec in (('x_spec', x_spec), ('y_spec', y_spec)):
      if spec.shape.rank is None or spec.shape.rank < 1 or spec.shape[0] is not None:
        raise ValueError(f'{name} is {spec}; its leading (batch) dimension must be None')
    if couples_examples:
      rank = y_spec.shape.rank
      example_loss = counted(example_loss, rank)
      metrics = {name: counted_metric(metric, rank) for name, metric in metrics.items()}
    self.forward = forward
    self.example_loss = example_loss
    self.penalty = penalty
    self.couples_examples = couples_examples
    self.client_axis = client_axis
    self.outputs = outputs
    self.set_metrics(metrics)
    # TFF's functions below do not see what `set_metrics` changes later.
    metric_fns = self.metric_fns
    sum_metrics = self.sum_metrics
    self._features = features

    @tf.function
    def predict_on_batch(model_weights: Any, x: Any, training: bool) -> Any:
      seed = None
      if training:
        # TFF passes no seed, so this one comes from TensorFlow's stateful generator.
        seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
      return forward(tuple(model_weights[0]), x, training, seed)

    def loss_fn(output: Any, label: Any, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
      losses = example_loss(output, label)
      shares = None
      if sample_weight is not None:
        shares = tf.math.divide_no_nan(sample_weight, tf.reduce_sum(sample_weight))
      mean = _mean(losses, shares)
      # TFF's loops also train on batches without examples. Their mean loss is 0, not 0 / 0.
      mean = tf.where(tf.size(losses) > 0, mean, tf.zeros_like(mean))
      return self.batch_loss(mean, label, shares)

    @tf.function
    def initialize_metrics() -> collections.OrderedDict:
      sizes = dict.fromkeys(('loss', *metric_fns), 2)
      sizes.update((name, metric.size) for name, metric in sum_metrics.items())
      return collections.OrderedDict((name, tf.zeros([size])) for name, size in sizes.items())

    @tf.function
    def update_metrics(
      state: Any, labels: Any, batch_output: Any, sample_weight: tf.Tensor | None = None
    ) -> collections.OrderedDict:
      del sample_weight  # TFF's loops give none.
      predictions = batch_output.predictions
      losses = example_loss(predictions, labels)
      pairs = {'loss': (losses, tf.ones_like(losses))}
      pairs.update((name, fn(predictions, labels)) for name, fn in metric_fns.items())
      sums = {
        name: tf.stack([_sum(numerator), _sum(denominator, numerator)])
        for name, (numerator, denominator) in pairs.items()
      }
      for name, metric in sum_metrics.items():
        sums[name] = _total(metric, predictions, labels)
      return collections.OrderedDict((name, state[name] + added) for name, added in sums.items())

    def finalize(sums: Any) -> collections.OrderedDict:
      pairs = {name: added for name, added in sums.items() if name not in sum_metrics}
      values = finalize_metrics(pairs)
      for name, metric in sum_metrics.items():
        values[name] = metric.result(sums[name])
      return values

    super().__init__(
      initial_weights=(tuple(initial_weights), ()),
      predict_on_batch_fn=predict_on_batch,
      loss_fn=loss_fn,
      metrics_fns=(initialize_metrics, update_metrics, tf.function(finalize)),
      input_spec=collections.OrderedDict(x=x_spec, y=y_spec),
    )

  def set_metrics(self, metrics: Mapping[str, MetricFn | SumMetric]) -> None:
    """Sets the metrics. TFF's own algorithms keep those that the model was made with.

    Raises ValueError if the name of a `SumMetric` does not say which values are good.
    """
    self.metric_fns: dict[str, MetricFn] = {}
    self.sum_metrics: dict[str, SumMetric] = {}
    for name, metric in metrics.items():
      if not isinstance(metric, SumMetric):
        self.metric_fns[name] = metric
        continue
      if metric.is_error != metric_names.is_error(name):
        raise ValueError(_contradiction(name, metric))
      self.sum_metrics[name] = metric
    self.trained_metric_names = ('loss', *self.metric_fns)
    self.metric_names = (*self.trained_metric_names, *self.sum_metrics)

  @property
  def num_parameters(self) -> int:
    """The number of trainable scalars."""
    return int(sum(np.size(w) for w in self.initial_weights[0]))

  def features(
    self,
    weights: Any,
    x: Any,
    training: bool,
    seed: tf.Tensor | None,
    layer: str | None = None,
  ) -> tf.Tensor:
    """Returns the input of the last layer, or the output of a named layer, [B, size].

    Args:
      weights: As for `forward`, like the next three.
      x: See there.
      training: See there.
      seed: See there.
      layer: The name of a layer of a Keras model; None for the input of the last one.

    Raises:
      ValueError: If the model was built without `features`, or has no layer of this name.
    """
    return self._features_of(layer)(tuple(weights), x, training, seed)

  def forward_and_move(self, weights: Any, x: Any, seed: tf.Tensor | None) -> tuple[Any, Any]:
    """Returns what `forward` does in training, and the tuple of `statistics` after this pass."""
    return self.forward(tuple(weights), x, True, seed), ()

  def _features_of(self, layer: str | None) -> Callable[..., tf.Tensor]:
    """Returns the function (weights, x, training, seed) -> features."""
    if layer is not None:
      raise ValueError(
        f'the model has no layer {layer!r}: only models of models.from_keras have layers by name.'
      )
    if self._features is None:
      raise ValueError(
        'the model gives no features of its examples, which this algorithm compares: give'
        ' models.Model(features=...), a function like forward that returns the input of the last'
        ' layer.'
      )
    return self._features

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
    """Returns the loss of a batch and the means of its metrics that are ratios.

    Class weights are in the loss, in training, and not in the metric 'loss'.

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
      mean numerator and denominator of each of M metrics, those in `trained_metric_names`. For G
      clients: [G] and [G, 2 M].
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
    arguments = [predictions, y]
    if self.couples_examples and shares is not None:
      arguments.append(shares > 0)
    losses = self.example_loss(*arguments)
    mean_loss = _mean(losses, shares)
    # A denominator of 1 for each example has the mean 1.
    one = tf.ones_like(mean_loss)
    means = [mean_loss, one]
    for fn in self.metric_fns.values():
      numerator, denominator = fn(*arguments)
      means.append(_mean(numerator, shares))
      if denominator is None:
        means.append(one)
      else:
        means.append(_mean(denominator, shares))
    means = tf.stack([tf.cast(mean, tf.float32) for mean in means], axis=-1)
    # The metric 'loss' has no weights, so that training and validation can be compared.
    if training:
      loss = self._training_loss(losses, y, shares)
    else:
      loss = self.batch_loss(mean_loss, y, shares)
    if self.penalty is not None and training:
      loss += self.penalty(tuple(weights))
    return loss, means

  def training_loss(self, predictions: Any, y: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
    """Returns the loss of a batch in training, from its predictions, without the penalty.

    Args:
      predictions: As `forward` returns them.
      y: Labels [B, ...].
      shares: Each example's share in the means, or None; see `loss_and_metrics`.
    """
    arguments = [predictions, y]
    if self.couples_examples and shares is not None:
      arguments.append(shares > 0)
    return self._training_loss(self.example_loss(*arguments), y, shares)

  def _training_loss(self, losses: tf.Tensor, y: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
    if self.class_weights is not None:
      losses = losses * _weights_of(self.class_weights, y, losses.dtype)
    return self.batch_loss(_mean(losses, shares), y, shares)

  def evaluation_sums(
    self, weights: Sequence[tf.Tensor], x: tf.Tensor, y: tf.Tensor
  ) -> collections.OrderedDict:
    """Returns the sums of all metrics over a batch, float32 [2] or [K] by name.

    Args:
      weights: Trainable weights, a tuple of tensors.
      x: Features [B, ...].
      y: Labels [B, ...].
    """
    predictions = self.forward(tuple(weights), x, False, None)
    _, means = self.loss_of_predictions(predictions, weights, y, training=False)
    sums = self.unpack_metrics(means * tf.cast(tf.shape(y)[0], tf.float32))
    # Sums, not means times a size: counts stay whole numbers.
    for name, metric in self.sum_metrics.items():
      sums[name] = _total(metric, predictions, y)
    return sums

  def metric_value(self, name: str, sums: Any) -> np.ndarray:
    """Returns a metric of its sums, float64 [...] of [..., 2] or [..., K]; NaN if not defined."""
    if name in self.sum_metrics:
      return self.sum_metrics[name].value(sums)
    sums = np.asarray(sums, np.float64)
    with np.errstate(all='ignore'):
      return np.asarray(np.where(sums[..., 1] != 0, sums[..., 0] / sums[..., 1], np.nan))

  def unpack_metrics(self, sums: tf.Tensor) -> collections.OrderedDict:
    """Splits metric sums [..., 2 M], ordered as in `loss_and_metrics`, to [..., 2] by name."""
    pairs = tf.reshape(sums, [*sums.shape[:-1], len(self.trained_metric_names), 2])
    return collections.OrderedDict(zip(self.trained_metric_names, tf.unstack(pairs, axis=-2)))


def _contradiction(name: str, metric: SumMetric) -> str:
  if metric.is_error:
    return (
      f'the metric {name!r} has is_error=True, but by its name high values are good: call it'
      f' {name}_error, say'
    )
  return (
    f'the metric {name!r} has is_error=False, but by its name small values are good: give it'
    ' another name'
  )


def _sum(values: tf.Tensor | None, like: tf.Tensor | None = None) -> tf.Tensor:
  if values is None:
    values = tf.ones_like(like)
  return tf.reduce_sum(tf.cast(values, tf.float32))


def _total(metric: SumMetric, predictions: Any, y: tf.Tensor) -> tf.Tensor:
  """Returns the sums [K] of a batch."""
  contributions = tf.cast(metric.contribution(predictions, y), tf.float32)
  return tf.reduce_sum(tf.ensure_shape(contributions, [None, metric.size]), 0)


def _mean(values: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
  if values.dtype.is_integer:
    values = tf.cast(values, tf.float32)
  if shares is None:
    return tf.reduce_mean(values, axis=-1)
  return tf.reduce_sum(values * tf.cast(shares, values.dtype), axis=-1)


def _weights_of(class_weights: Sequence[float], y: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Returns the weight of each example's class, [B] or [G, B]."""
  return tf.gather(tf.constant(class_weights, dtype), tf.cast(y, tf.int32))


def finalize_metrics(sums: Mapping[str, tf.Tensor]) -> collections.OrderedDict:
  """Divides each metric's sums [numerator, denominator]; returns values by name, NaN for x / 0."""
  # TFF takes no function with default parameters, so this one knows nothing of `SumMetric`.
  values = collections.OrderedDict()
  for name, pair in sums.items():
    quotient = tf.math.divide_no_nan(pair[0], pair[1])
    values[name] = tf.where(pair[1] != 0, quotient, tf.cast(np.nan, quotient.dtype))
  return values


def accuracy(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
  """Computes top-1 accuracy, a metric of `Model`, from scores [..., classes] and labels [...]."""
  classes = tf.argmax(predictions, -1, output_type=tf.int32)
  hit = tf.cast(tf.equal(classes, tf.cast(y, tf.int32)), tf.float32)
  return hit, None


def sparse_cross_entropy(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  """Returns each example's softmax cross-entropy of logits [..., classes] and labels [...]."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
