"""The checked arguments of a process, and small parts that several modules share."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import validation
from tff_adaptive.algorithms import aggregator_state
from tff_adaptive.asynchrony.settings import Buffered
from tff_adaptive.client import client_optimizer, local_training, model_adapters
from tff_adaptive.corrections import base as corrections
from tff_adaptive.optimizers.base import Rate

Aggregator: TypeAlias = (
  tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory
)
Weighting: TypeAlias = str | Callable[[Any], tf.Tensor]


class Recipe(NamedTuple):
  """The checked arguments of `build_drift_corrected`."""

  model: model_adapters.LocalModel
  training: local_training.ClientTraining
  correction: corrections.Correction
  server_optimizer: tff.learning.optimizers.Optimizer
  client_learning_rate: Rate
  aggregator: Aggregator | None
  client_weighting: Weighting
  asynchrony: Buffered | None = None

  def client_state(self, weights: corrections.Weights) -> Any:
    """Returns a client's first state; see `first_client_state`."""
    return first_client_state(self.correction, self.training, weights)

  def server_state(self, weights: corrections.Weights) -> Any:
    """Returns the first server state: the correction's, and the client optimizer's if averaged."""
    of_correction = self.correction.server_state(weights)
    if self.training.optimizer_state != 'average':
      return of_correction
    slots = client_optimizer.initial_slots(self.training.optimizer, weights)
    return collections.OrderedDict(correction=of_correction, optimizer=slots)

  def split(self, server_state: Any) -> tuple[Any, Any]:
    """Splits a server state into the correction's and the client optimizer's part (() if none)."""
    if self.training.optimizer_state != 'average':
      return server_state, ()
    return server_state['correction'], tuple(server_state['optimizer'])

  def client_work(self) -> Any:
    """Returns the clients' hyperparameters in the server state: a rate that `set_hparams` changes.

    It is () if a schedule gives the rate. A process with client states has no `set_hparams`.
    """
    if callable(self.client_learning_rate) or self.is_stateful:
      return ()
    rate = tf.constant(self.client_learning_rate, tf.float32)
    return collections.OrderedDict([(tff.learning.optimizers.LEARNING_RATE_KEY, rate)])

  @property
  def is_stateful(self) -> bool:
    """Whether clients keep a state from round to round."""
    return self.correction.keeps_client_state() or self.training.optimizer_state == 'keep'

  @property
  def is_plain(self) -> bool:
    """Whether the algorithm has no states and messages besides models and updates, like FedAvg."""
    # What changes a client's steps alone, as FedProx's `gradient` does, is not among them.
    methods = ('server_state', 'broadcast', 'exchange', 'client_update', 'restore', 'server_update')
    has_server_part = self.correction.overrides(*methods, 'inference_weights')
    averages = self.training.optimizer_state == 'average'
    is_asynchronous = self.asynchrony is not None
    return not (has_server_part or averages or self.is_stateful or is_asynchronous)


def first_client_state(
  correction: corrections.Correction,
  training: local_training.ClientTraining,
  weights: corrections.Weights,
) -> Any:
  """Returns a client's first state: the correction's, and the optimizer's if clients keep it."""
  of_correction = correction.client_state(weights)
  if training.optimizer_state != 'keep':
    return of_correction
  slots = client_optimizer.initial_slots(training.optimizer, weights)
  return collections.OrderedDict(correction=of_correction, optimizer=slots)


def check_weighting(client_weighting: Weighting) -> None:
  """Raises ValueError for an unknown client weighting."""
  if not callable(client_weighting) and client_weighting not in ('examples', 'uniform'):
    raise ValueError(
      f'client_weighting is {client_weighting!r}; it must be one of examples, uniform, or a '
      "function of a client's metrics"
    )


def client_weight(client_weighting: Weighting, trained: local_training.Trained) -> tf.Tensor:
  """Returns a client's weight in the mean of the updates, float32; [G] for a group of G clients.

  It is the number of examples, 1 or a function of the metrics; 0 if the update is not used.
  """
  if callable(client_weighting):
    # No product: the metrics of a client without steps may give NaN, and 0 times NaN is NaN.
    weight = tf.cast(client_weighting(trained.metrics), tf.float32)
    weight = tf.reshape(weight, tf.shape(trained.is_used))  # Keras's metrics give lists.
    return tf.where(trained.is_used > 0, weight, 0.0)
  if client_weighting == 'examples':
    return trained.is_used * trained.num_examples
  return trained.is_used


def check_rate(name: str, rate: Rate) -> Rate:
  """Returns the rate; raises TypeError or ValueError unless it is a schedule or a number >= 0."""
  if callable(rate):
    return rate
  return validation.at_least_zero(name, rate, 'give a rate such as 0.1, or a function of the round')


def check_aggregator(aggregator: Aggregator | None, client_weighting: Weighting) -> None:
  """Raises TypeError if an aggregator is no TFF factory, ValueError if weights do not suit it."""
  if aggregator is None or isinstance(aggregator, tff.aggregators.WeightedAggregationFactory):
    return
  if not isinstance(aggregator, tff.aggregators.UnweightedAggregationFactory):
    raise TypeError(
      'aggregator must be a tff.aggregators.WeightedAggregationFactory or '
      f'UnweightedAggregationFactory, found {aggregator!r}: give tff.learning.robust_aggregator(), '
      'say, or None for the mean'
    )
  if client_weighting != 'uniform':
    raise ValueError(
      f'client_weighting is {client_weighting!r}, but the aggregator '
      f"({type(aggregator).__name__}) takes no weights: give client_weighting='uniform'"
    )


def build_aggregator(
  aggregator: Aggregator | None, update_type: Any, weight_type: Any
) -> tff.templates.AggregationProcess:
  """Builds the aggregation process of the updates; None means their weighted mean.

  The process's state does not change in a round without a usable update; see `aggregator_state`.
  """
  factory: Any = tff.aggregators.MeanFactory()
  if aggregator is not None:
    factory = aggregator
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    # The process then gives each aggregator a weight, which this one ignores.
    factory = tff.aggregators.as_weighted_aggregator(factory)
  return aggregator_state.kept_without_updates(factory.create(update_type, weight_type))
