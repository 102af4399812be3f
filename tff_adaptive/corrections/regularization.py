"""Clipping of local gradients and weight decay."""

from __future__ import annotations

import dataclasses

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class Clip(base.Correction):
  """Scales a local gradient down to a 2-norm if it is larger.

  In a chain it clips what the parts before it return.

  Attributes:
    norm: The largest 2-norm of all weights' gradients together, > 0.
  """

  norm: float = option(1.0, 'The largest 2-norm of a local gradient', validation.above_zero)
  name = 'clip'
  title = 'clipping'
  summary = 'local gradients are clipped to a 2-norm'

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    # All weights together: clipping each tensor by itself would change the direction.
    dtypes = {leaf.dtype for leaf in g}
    if len(dtypes) == 1 and next(iter(dtypes)).size >= 4:
      return tuple(tf.clip_by_global_norm(g, self.norm)[0])
    # TensorFlow's function squares in 16 bits, which overflows above 255, and wants one dtype.
    # min(1, norm / ||g||), without a division by a norm of 0.
    factor = self.norm / tf.maximum(base.norm(g), self.norm)
    return base.combine(lambda leaf: base.scale(factor, leaf), g)


@dataclasses.dataclass(frozen=True)
class WeightDecay(base.Correction):
  """Adds the weights times a factor to the local gradient: L2 regularization of the local loss.

  Attributes:
    decay: The factor, >= 0.
  """

  decay: float = option(1e-4, 'Factor of the weights in a local gradient', validation.at_least_zero)
  name = 'weight_decay'
  title = 'weight decay'
  summary = 'the weights times a factor are added to local gradients'

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    if self.decay == 0:
      return g
    # Adam as client optimizer rescales this decay as it does the gradient, unlike AdamW's own.
    return base.combine(lambda g, w: g + self.decay * w, g, theta)
