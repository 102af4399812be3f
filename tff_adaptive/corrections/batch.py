"""What a part may see of a batch when it changes the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf

if TYPE_CHECKING:
  from tff_adaptive.corrections.algebra import Weights

_LEAST = 1e-30  # Of a probability, whose logarithm has to be finite.


class Batch(NamedTuple):
  """A client's batch in a local step, for `Correction.loss`.

  Attributes:
    theta: The weights at which the loss is differentiated.
    x: The features, [B, ...].
    y: The labels, [B, ...].
    outputs: The model's predictions at `theta`, such as logits [B, classes].
    loss: The batch's loss, a scalar, with the model's penalty if it has one.
    shares: Each example's share in a mean, float32 [B]: 0 for padding. None if all count the same.
    outputs_at: A function (weights) -> the predictions at these weights, with the same dropout.
    features_at: A function (weights, layer=None) -> the input of the last layer at these weights,
      or the output of the layer of this name in a Keras model, [B, size].
    loss_of: A function (predictions) -> the model's loss if it gave these, a scalar, with class
      weights and without the penalty.
    are_probabilities: Whether the model says that it gives probabilities, not logits.
  """

  theta: Weights
  x: Any
  y: Any
  outputs: tf.Tensor
  loss: tf.Tensor
  shares: tf.Tensor | None
  outputs_at: Callable[[Weights], tf.Tensor]
  features_at: Callable[..., tf.Tensor]
  loss_of: Callable[[tf.Tensor], tf.Tensor]
  are_probabilities: bool = False

  def mean(self, values: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the examples' values [B], without padding."""
    # The shares are 1 / size, and 0 for padding; in a group also after the client's last step.
    if self.shares is None:
      return tf.reduce_mean(values)
    return tf.reduce_sum(values * tf.cast(self.shares, values.dtype))

  def classes(self) -> tf.Tensor:
    """Returns the labels of a classifier, class numbers [B].

    Raises:
      ValueError: If the labels are no class numbers [B], or the model has no output for each class.
    """
    has_class_numbers = tf.is_tensor(self.y) and self.y.dtype.is_integer
    shape = self.outputs.shape
    if not has_class_numbers or shape.rank != 2 or shape[-1] == 1:
      raise ValueError(
        'the algorithm needs a classifier, whose labels are integers [B] and whose outputs are'
        ' logits or probabilities [B, classes]; the model is another one: take another algorithm.'
      )
    return self.y

  def logits(self, outputs: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the logits of a classifier's outputs, by default those at theta.

    Of probabilities they are what went into the softmax, or their logarithms, which differ from
    that by a constant for each example.

    Returns:
      float32 [B, classes].

    Raises:
      ValueError: As `classes`.
    """
    self.classes()
    if outputs is None:
      outputs = self.outputs
    scores = _input_of_softmax(outputs)
    if scores is None:
      scores = outputs
      if self.are_probabilities:
        scores = tf.math.log(tf.maximum(tf.cast(outputs, tf.float32), _LEAST))
    # A model may compute in 16 bits, too few for the -1e9 and the exponentials of parts.
    return tf.cast(scores, tf.float32)

  def loss_of_logits(self, logits: tf.Tensor) -> tf.Tensor:
    """Returns the model's loss if its outputs had these logits [B, classes]; see `loss_of`."""
    if self.are_probabilities or _input_of_softmax(self.outputs) is not None:
      return self.loss_of(tf.nn.softmax(logits))
    return self.loss_of(logits)


def _input_of_softmax(outputs: tf.Tensor) -> tf.Tensor | None:
  """Returns what a softmax made into `outputs`, as Keras's losses look for it; None otherwise."""
  operation = getattr(outputs, 'op', None)  # Eager tensors have none.
  if operation is None or operation.type != 'Softmax':
    return None
  return operation.inputs[0]
