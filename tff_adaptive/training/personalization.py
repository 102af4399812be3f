"""Fine-tunes a model on one client, as a baseline of personalization."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive._utils import draws
from tff_adaptive.client import local_training, model_adapters
from tff_adaptive.corrections import base as corrections, chains

# (weights, data, the client's number, the number of rounds done) -> weights.
Personalize: TypeAlias = Callable[[Any, Any, int, int], Any]


def build_personalization(
  model: models.Model,
  training: local_training.ClientTraining,
  learning_rate: Callable[[int], float],
  parts: Sequence[corrections.Correction] = (),
) -> Personalize:
  """Builds a function that fine-tunes a model on one client's examples, as FedAvg trains locally.

  Args:
    model: The model.
    training: A client's training. `optimizer_state`, `step_limits` and `xla` are ignored.
    learning_rate: The run's client rate as a function of the round, counted from 0.
    parts: Parts of the algorithm that fine-tuning has too, such as `corrections.Clip`.

  Returns:
    `(weights, data, client, rounds) -> weights`. The weights are the trainable ones, `data` is
    `OrderedDict(x=..., y=...)`. The client's number and the number of rounds done determine the
    order of the examples. If fine-tuning diverges, the function returns the weights unchanged.
  """
  local = model_adapters.wrap(model)
  if training.batching is None:
    raise ValueError(
      'fine-tuning needs whole arrays: give ClientTraining(batching=tff_adaptive.Batching(20)), say'
    )
  # Fine-tuning takes all steps: its data have no `max_steps`, even if those of the run have it.
  batching = dataclasses.replace(training.batching, step_limits=False)
  # With the run's own seed, examples would have the order that they have in the next round.
  seed = int(draws.generator(training.seed, draws.FINE_TUNING).integers(2**62))
  training = dataclasses.replace(
    training.resolved(local.named_weights()),
    batching=batching,
    seed=seed,
    optimizer_state='reset',
    xla=False,
  )
  # Without the algorithm's correction: there is no server that h or a broadcast could come from.
  correction = chains.chain(*parts)
  specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0])
  number = tf.TensorSpec([], tf.int32)
  rate_spec = tf.TensorSpec([], tf.float32)

  @tf.function(
    input_signature=(specs, *model.input_spec.values(), number, number, rate_spec), autograph=False
  )
  def fine_tune(
    weights: Any, x: tf.Tensor, y: tf.Tensor, client: tf.Tensor, rounds: tf.Tensor, rate: tf.Tensor
  ) -> Any:
    element = collections.OrderedDict(x=x, y=y, client=client)
    trained = local_training.train(
      local,
      training,
      correction,
      weights=tff.learning.models.ModelWeights(weights, ()),
      data=tf.data.Dataset.from_tensors(element),
      client_state=(),
      message=local_training.Message(rounds + 1, rate),
    )
    # The update is zero if training diverged, so that the weights stay.
    return corrections.combine(tf.subtract, weights, trained.update)

  # Concrete, because that of a program's fifth run would warn of retracing.
  traced = functools.cache(fine_tune.get_concrete_function)

  def personalize(weights: Any, data: Any, client: int, rounds: int) -> Any:
    batch = (tf.cast(data[name], spec.dtype) for name, spec in model.input_spec.items())
    weights = tuple(tf.convert_to_tensor(w) for w in weights)
    # The rate is that of the last round: the schedule may fall before the next, if there is one.
    rate = tf.constant(learning_rate(max(rounds - 1, 0)), tf.float32)
    return traced()(weights, *batch, tf.constant(client), tf.constant(rounds), rate)

  return personalize
