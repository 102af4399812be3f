"""What a part may see of a batch when it changes the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf

if TYPE_CHECKING:
  from tff_adaptive.corrections.algebra import Weights


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
  """

  theta: Weights
  x: Any
  y: Any
  outputs: tf.Tensor
  loss: tf.Tensor
  shares: tf.Tensor | None
  outputs_at: Callable[[Weights], tf.Tensor]
  features_at: Callable[..., tf.Tensor]

  def mean(self, values: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the examples' values [B], without padding."""
    # The shares are 1 / size, and 0 for padding; in a group also after the client's last step.
    if self.shares is None:
      return tf.reduce_mean(values)
    return tf.reduce_sum(values * tf.cast(self.shares, values.dtype))

  def logits(self, outputs: tf.Tensor | None = None) -> tf.Tensor:
    """Returns outputs of a classifier, by default those at theta, as float32 [B, classes].

    Raises:
      ValueError: If the labels are no class numbers [B], or the outputs not [B, classes].
    """
    if outputs is None:
      outputs = self.outputs
    has_class_numbers = tf.is_tensor(self.y) and self.y.dtype.is_integer
    if not has_class_numbers or outputs.shape.rank != 2:
      raise ValueError(
        'the algorithm changes the cross-entropy of a classifier, whose labels are integers [B] and'
        ' whose outputs are logits [B, classes]; the model is another one: take another algorithm.'
      )
    # A model may compute in 16 bits, too few for the -1e9 and the exponentials of parts.
    return tf.cast(outputs, tf.float32)
