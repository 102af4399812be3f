"""FedProto: clients share the mean features of each class, and no weights."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils import validation, weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import Batch, ClientRound, ServerRound, Weights
from tff_adaptive.corrections.kept_weights import KeptWeights


@dataclasses.dataclass(frozen=True)
class FedProto(KeptWeights):
  """FedProto: a client's model is its own, drawn to the clients' mean features of each class.

  The loss has proto_weight times the mean of (z - p_c)^2 too, over examples and features, where z
  are an example's features (the input of the last layer) and p_c the prototype of its class: the
  mean over all examples of the last cohort. "FedProto" (Tan et al., 2022), Algorithm 1. A client's
  features are those of the model with which it begins the round. Its model predicts by its last
  layer, not by the nearest prototype.

  Attributes:
    layers: The weights that stay; by default all, so that only prototypes are sent.
    proto_weight: Weight of the distance to the prototypes, >= 0.
  """

  layers: str = option('*', weight_groups.HELP, weight_groups.check)
  proto_weight: float = option(
    1.0,
    'Weight of the distance of features to the prototype of the class',
    validation.at_least_zero,
  )
  name = 'fed_proto'
  title = 'FedProto'
  summary = 'models stay at the clients, which share the mean features of each class'
  paper = 'Tan et al., "FedProto", AAAI 2022, Algorithm 1'
  combine_uploads = 'sum'
  sends_exact = True  # A mean is the quotient of a sum and a count.
  uploads_what = 'the sums of its features by class, and its label counts'
  needs_batching = 'it sums the features of all examples'

  def server_state(self, weights: Weights) -> Any:
    # `known` is 0 for a class that no cohort has had yet: it has no prototype to be drawn to.
    size, classes = base.head_shape(weights)
    return collections.OrderedDict(prototypes=tf.zeros([classes, size]), known=tf.zeros([classes]))

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    if self.proto_weight == 0:
      return batch.loss
    classes = batch.classes()
    features = tf.cast(batch.features_at(batch.theta), tf.float32)
    prototypes = tf.gather(client.broadcast['prototypes'], classes)
    distance = tf.reduce_mean(tf.square(features - prototypes), -1)
    is_known = tf.gather(client.broadcast['known'], classes)
    return batch.loss + self.proto_weight * batch.mean(is_known * distance)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # Sums and counts, not means: the server's mean is then over all examples of a class.
    state, _ = super().client_update(client, g_i, steps)
    _, classes = base.head_shape(client.theta_0)
    return state, client.class_features(classes)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    sums, counts = server.uploads
    means = tf.math.divide_no_nan(sums, counts[:, tf.newaxis])
    is_seen = counts > 0
    # A class that this cohort lacks keeps the prototype of the last cohort that had it.
    prototypes = tf.where(is_seen[:, tf.newaxis], means, server_state['prototypes'])
    known = tf.where(is_seen, tf.ones_like(counts), server_state['known'])
    return collections.OrderedDict(prototypes=prototypes, known=known), server.g_bar
