"""The local training of a client, in one loop that every algorithm shares."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import validation
from tff_adaptive.client import (
  batch_sources,
  batching as batching_lib,
  client_optimizer,
  model_adapters,
)
from tff_adaptive.corrections import base as corrections, probe, results

OPTIMIZER_STATES = ('reset', 'keep', 'average')


@dataclasses.dataclass(frozen=True)
class ClientTraining:
  """The settings of a client's training in a round.

  Attributes:
    optimizer: The client optimizer. The default is SGD, which the corrections' formulas assume.
      `client_learning_rate` replaces its own rate in each round.
    optimizer_state: What happens to the optimizer's state (moments, step counters) after a round.
      With 'reset' it begins anew in each round. With 'keep' each client keeps it, as in DiLoCo.
      With 'average' the server averages the cohort's states, with the weights of the updates, and
      sends the mean to the next cohort.
    sam_rho: rho of sharpness-aware minimization, or 0 for none. The gradient is taken at theta +
      rho g / ||g|| on the same batch, and then corrected ("Generalized Federated Learning via
      Sharpness Aware Minimization", Qu et al., 2022, Algorithm 1). The same holds for
      `ClientRound.gradient_at`. With FedCM this is MoFedSAM, with SCAFFOLD FedGAMMA, and with
      FedDyn FedSpeed.
    batching: How clients given as arrays (`client_arrays`) form batches. None means TFF's
      convention: each element of a client's dataset is one batch and one step.
    weight_decay: The weights times this factor, >= 0, are added to the (clipped) gradient.
    clip_norm: Larger corrected gradients are scaled down to this 2-norm, > 0. None clips nothing.
    seed: Seed of shuffling and dropout, from 0 to 2^62 - 1.
    xla: Whether XLA compiles the local step, for GPUs. The model must be a `models.Model`.
    versions: Number of older models that a run keeps for asynchronous training (see
      `training.Buffered`); 0 for synchronous rounds. The caller sets `distributor` in the server
      state to the stack of models with which the clients of a step began. The step replaces it by
      the model before the step. A client's data have two more entries: `version` (int32), the row
      of its model in the stack, or -1 for the present model, and `discount` (float32), a factor of
      its update. Clients are not trained in groups.
    mixing: Whether an asynchronous update is the present model minus the client's, as in FedAsync
      (see `training.Buffered`). In a client's data `discount` is then called `mixed`.

  Raises:
    ValueError: If a number is out of its range.
    TypeError: If an argument has the wrong type.
  """

  optimizer: tff.learning.optimizers.Optimizer = dataclasses.field(
    default_factory=tff.learning.optimizers.build_sgdm
  )
  batching: batching_lib.Batching | None = None
  optimizer_state: str = 'reset'
  sam_rho: float = 0.0
  weight_decay: float = 0.0
  clip_norm: float | None = None
  seed: int = 0
  xla: bool = False
  versions: int = 0
  mixing: bool = False

  def __post_init__(self) -> None:
    hint = 'give tff_adaptive.optimizers.build_sgdm(0.1), say, or leave it out for SGD'
    validation.instance('optimizer', self.optimizer, tff.learning.optimizers.Optimizer, hint)
    if self.batching is not None:
      hint = 'give tff_adaptive.Batching(20), say, or None for datasets of batches'
      validation.instance('batching', self.batching, batching_lib.Batching, hint)
    if self.optimizer_state not in OPTIMIZER_STATES:
      raise ValueError(
        f'optimizer_state must be one of {", ".join(OPTIMIZER_STATES)}, found '
        f'{self.optimizer_state!r}'
      )
    validation.field(self, 'sam_rho', validation.at_least_zero, 'give 0 for none, or 0.05, say')
    # 62 bits: what `seeds.base` holds.
    validation.whole_number('seed', self.seed, 0, 'give a seed such as 0', high=2**62 - 1)
    validation.field(self, 'weight_decay', validation.at_least_zero, 'give 0 for none')
    validation.whole_number('versions', self.versions, 0, 'give 0 for synchronous rounds')
    if self.versions and self.batching is None:
      raise ValueError('versions need clients given as whole arrays: give batching.')
    if self.mixing and not self.versions:
      raise ValueError('mixing is for asynchronous training: give versions, or leave it out.')
    if self.clip_norm is not None:
      validation.field(self, 'clip_norm', validation.above_zero, 'give None for no clipping')


class Message(NamedTuple):
  """The values that a client receives in addition to the weights.

  Attributes:
    t: The number of the round, int32, counted from 1.
    rate: eta_l of this round, float32.
    broadcast: The result of `Correction.broadcast`.
    optimizer: The client optimizer's averaged state; () if it is not averaged.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
  """

  t: tf.Tensor
  rate: tf.Tensor
  broadcast: Any = ()
  optimizer: Any = ()
  exchanged: Any = ()


class Trained(NamedTuple):
  """The result of a client's training in a round.

  Attributes:
    update: The value to aggregate: the result of `Correction.update`, by default the client's g_i =
      theta^{t-1} - theta_i. Zero if the update is not used.
    client_state: The client's new state; unchanged if the update is not used.
    upload: The upload of `Correction.client_update`; zero if the update is not used.
    optimizer: The optimizer's state. () if it is not averaged; zero if the update is not used.
    num_examples: Number of examples, float32. With `batching` each counts once, not once per epoch;
      otherwise this is the number in all batches of the dataset.
    is_used: float32: 1 if the client took a step and its results are finite, else 0.
    diverged: float32: 1 if the client took a step with a result that is not finite, else 0.
    squared_norm: The update's squared 2-norm; zero if the update is not used.
    metrics: The client's unfinalized training metrics.
  """

  update: Any
  client_state: Any
  upload: Any
  optimizer: Any
  num_examples: tf.Tensor
  is_used: tf.Tensor
  diverged: tf.Tensor
  squared_norm: tf.Tensor
  metrics: Any


def data_type(model: model_adapters.LocalModel, training: ClientTraining) -> tff.types.SequenceType:
  """Returns a client's TFF data type; raises ValueError if `batching` does not suit the model."""
  element = model.input_spec
  if training.batching is not None:
    if not isinstance(element, collections.abc.Mapping) or set(element) != {'x', 'y'}:
      raise ValueError(
        f'local batching needs a model with an input_spec of x and y, found {element}; leave '
        'batching=None and give batched datasets instead'
      )
    element = collections.OrderedDict(element, client=tf.TensorSpec([], tf.int32))
    if training.batching.step_limits:
      element['max_steps'] = tf.TensorSpec([], tf.int32)
    if training.versions:
      int32, float32 = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
      factor = 'mixed' if training.mixing else 'discount'
      element.update({'version': int32, factor: float32})
  return tff.types.SequenceType(tff.types.tensorflow_to_type(element))


def can_group(model: model_adapters.LocalModel, training: ClientTraining) -> bool:
  """Returns whether clients can train in groups with this model and training; see `train`."""
  if training.batching is None or training.batching.batch_size is None or training.versions:
    return False  # With versions clients begin with different models.
  # Clients are padded to the longest one and stacked: all examples must have the same shape.
  shapes = [s.shape[1:] for s in tf.nest.flatten(model.input_spec)]
  return model.is_masked and all(shape.is_fully_defined() for shape in shapes)


def start(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> tuple[Any, corrections.ClientRound]:
  """Returns a client's source of batches and its `ClientRound`; see `train` for the arguments."""
  source: Any
  if training.batching is None:
    source = batch_sources.Batches(model, training.seed, data, message.t)
  elif isinstance(data, list):
    source = batch_sources.GroupOfArrays(model, training.batching, training.seed, data, message.t)
  else:
    element = data.get_single_element()
    source = batch_sources.WholeArrays(model, training.batching, training.seed, element, message.t)
  theta_0, non_trainable = tuple(weights.trainable), tuple(weights.non_trainable)
  return source, corrections.ClientRound(
    theta_0=theta_0,
    client_state=client_state,
    broadcast=message.broadcast,
    t=tf.cast(message.t, tf.float32),
    eta_l=message.rate,
    num_examples=source.num_examples,
    full_gradient=lambda: source.mean_gradient(theta_0, non_trainable),
    mean_steps=None if training.batching is None else training.batching.local_steps,
    exchanged=message.exchanged,
  )


def exchange(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> tuple[Any, tf.Tensor]:
  """Returns the result of `Correction.exchange`, and the client's number of examples, float32.

  Both are 0 if the client has no examples or a result is not finite. Arguments: see `train`.
  """
  size = len(data) if isinstance(data, list) else None
  state = client_state['correction'] if training.optimizer_state == 'keep' else client_state
  source, client = start(model, training, weights, data, state, message)
  sent = _each(size, lambda one, _: correction.exchange(one), client, ())
  num_examples = source.count_examples()
  counts = tf.math.is_finite(_squared_norm(sent, size)) & (num_examples > 0)
  return _where(counts, sent, _zeros(sent)), tf.where(counts, num_examples, 0.0)


def train(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  *,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> Trained:
  """Trains a client, or a group of G clients, for a round, in a `tff.tensorflow.computation`.

  Args:
    model, training, correction: The model, the settings and the client correction.
    weights: theta^{t-1}, the weights that the server sent.
    data: The client's data, of type `data_type`; for a group, the list of the clients' elements.
    client_state: The client's state; for a group, every tensor has a leading axis G.
    message: The values that the server sent in addition to the weights.

  Returns:
    The results; for a group, every tensor has a leading axis G.
  """
  size = len(data) if isinstance(data, list) else None
  keeps, averages = (training.optimizer_state == kind for kind in ('keep', 'average'))
  own_state = client_state['correction'] if keeps else client_state
  source, client = start(model, training, weights, data, own_state, message)
  theta_0, non_trainable = client.theta_0, tuple(weights.non_trainable)
  optimizer = client_optimizer.ClientOptimizer(training.optimizer, theta_0, message.rate, size)
  begin, slots = optimizer.tile(theta_0), optimizer.tile(optimizer.slots)
  if keeps:
    slots = tuple(client_state['optimizer'])
  elif averages:
    slots = optimizer.tile(tuple(message.optimizer))
  carried = _each(size, lambda one, _: correction.local_state(one), client, ())
  has_local_state = bool(tf.nest.flatten(carried))
  corrects = correction.overrides('gradient')
  # Gradients at other points add nothing to the metrics. `gradient_at` always has one client.
  asks = corrects and probe.trace(correction, theta_0).gradients
  silent = model.without_metrics()
  unused = silent.start() if training.sam_rho or asks else ()
  if size is not None:
    model = model.for_groups()
  moves_without_data = training.weight_decay or model.has_penalty or corrects
  # After a client's last step its gradient is zero, which stops SGD, but not every optimizer.
  must_stop = has_local_state or not optimizer.is_sgd
  # Where nothing stands between the gradient g and SGD, the model computes eta_l g.
  between = corrects or training.sam_rho or training.weight_decay or training.clip_norm
  is_plain = optimizer.is_sgd and not between

  def gradient(
    of: model_adapters.LocalModel,
    theta: corrections.Weights,
    others: corrections.Weights,
    local: model_adapters.LocalStep,
    metrics: Any,
    size: int | None,
  ) -> tuple[corrections.Weights, corrections.Weights, Any]:
    g, moved, metrics = of.gradients(theta, others, local, metrics)
    if training.sam_rho:
      factor = tf.math.divide_no_nan(training.sam_rho, tf.sqrt(corrections.squared_norm(g, size)))
      point = corrections.combine(lambda w, g: w + corrections.scale(factor, g), theta, g)
      quiet, nothing = silent, unused
      if size is not None:
        quiet, nothing = silent.for_groups(), silent.start(size)
      g, _, _ = quiet.gradients(point, others, local, nothing)
    return g, moved, metrics

  def step(state: Any, local: model_adapters.LocalStep) -> Any:
    theta, others, slots, carried, metrics = state
    local = local._replace(factor=message.rate if is_plain else None)
    g, moved, metrics = gradient(model, theta, others, local, metrics, size)
    if corrects:
      each = (carried, theta, others, g, local.batch, local.weighting, local.seed)
      g, new_carried = _each(size, corrected, client, each)
    else:
      new_carried = carried
    if training.clip_norm is not None:
      g = _clip(g, training.clip_norm, size)
    if training.weight_decay:
      g = corrections.combine(lambda g, w: g + training.weight_decay * w, g, theta)
    if local.active is not None and moves_without_data:
      g = corrections.combine(lambda g: corrections.scale(local.active, g), g)
    if is_plain:
      new_slots, new_theta = slots, corrections.combine(tf.subtract, theta, g)
    else:
      new_slots, new_theta = optimizer.next(slots, theta, g)
    new = tuple(new_theta), moved, new_slots, new_carried
    if local.active is not None and must_stop:
      new = _where(local.active > 0, new, (theta, others, slots, carried))
    return *new, metrics

  def corrected(one: corrections.ClientRound, each: Any) -> tuple[corrections.Weights, Any]:
    carried, theta, others, g, *local = each

    def gradient_at(point: corrections.Weights) -> corrections.Weights:
      step = model_adapters.LocalStep(*local)
      return gradient(silent, point, others, step, unused, None)[0]

    one = one._replace(local_state=carried, gradient_at=gradient_at)
    return results.gradient(correction, one, theta, g)

  if training.xla:
    # The step and not the loop, because the step's shapes are the same for clients of all sizes.
    step = tf.function(step, jit_compile=True, autograph=False)
  first = (begin, non_trainable, slots, carried, model.start(size))
  (theta, _, slots, carried, metrics), steps, seen = source.run(step, first)
  g_i = corrections.combine(tf.subtract, theta_0, theta)
  client = client._replace(num_examples=seen)
  k_i = tf.cast(steps, tf.float32)

  def finish(one: corrections.ClientRound, each: Any) -> tuple[corrections.Weights, Any, Any]:
    g_i, k_i, carried = each
    return results.client_update(correction, one._replace(local_state=carried), g_i, k_i)

  update, new_state, upload = g_i, own_state, ()
  if type(correction) is not corrections.Correction:
    update, new_state, upload = _each(size, finish, client, (g_i, k_i, carried))
  if keeps:
    new_state = collections.OrderedDict(correction=new_state, optimizer=slots)
  squared_norm = _squared_norm(update, size)
  # The norm shows any NaN or infinity; a client whose norm overflows has diverged as well.
  is_finite = tf.math.is_finite(squared_norm)
  # The update may be finite and these not: SCAFFOLD's option I has gradients of other examples.
  averaged = slots if averages else ()
  for tree in (new_state, upload, averaged):
    is_finite &= tf.math.is_finite(_squared_norm(tree, size))
  # A client without examples took no step and has no update.
  is_used, diverged = is_finite & (steps > 0), ~is_finite & (steps > 0)
  return Trained(
    update=_where(is_used, update, _zeros(update)),
    client_state=_where(is_used, new_state, client_state),
    upload=_where(is_used, upload, _zeros(upload)),
    optimizer=_where(is_used, averaged, _zeros(averaged)),
    num_examples=seen,
    is_used=tf.cast(is_used, tf.float32),
    diverged=tf.cast(diverged, tf.float32),
    squared_norm=tf.where(is_used, squared_norm, 0.0),
    metrics=model.metric_sums(metrics, is_used),
  )


def _each(
  size: int | None,
  function: Callable[[corrections.ClientRound, Any], Any],
  client: corrections.ClientRound,
  values: Any,
) -> Any:
  """Applies a function of one client to a client, or to each client of a group.

  In a group the client's state, number of examples and full gradient, the values and the result
  have a leading axis G.
  """
  if size is None:
    return function(client, values)

  def one(each: Any) -> Any:
    i, state, num_examples, values = each

    def full_gradient() -> corrections.Weights:
      return tuple(tf.gather(leaf, i) for leaf in client.full_gradient())

    mine = client._replace(
      client_state=state, num_examples=num_examples, full_gradient=full_gradient
    )
    # The result may be a tensor of an outer graph, which `vectorized_map` does not take.
    return tf.nest.map_structure(tf.identity, function(mine, values))

  return tf.vectorized_map(one, (tf.range(size), client.client_state, client.num_examples, values))


def _squared_norm(tree: Any, size: int | None) -> tf.Tensor:
  """Returns the squared 2-norm of all floating-point tensors; [size] for a group of clients."""
  floats = [w for w in map(tf.convert_to_tensor, tf.nest.flatten(tree)) if w.dtype.is_floating]
  if floats and size is None and all(w.dtype == tf.float32 for w in floats):
    return 2 * tf.add_n([tf.nn.l2_loss(w) for w in floats])  # One pass; a sum takes two.
  return corrections.squared_norm(tuple(floats), size)


def _zeros(tree: Any) -> Any:
  return tf.nest.map_structure(tf.zeros_like, tree)


def _where(condition: tf.Tensor, value: Any, otherwise: Any) -> Any:
  """Returns `value` where the condition holds, else `otherwise`; for a group client by client."""
  if not tf.nest.flatten(value):
    return value
  if condition.shape.rank == 0:
    return tf.cond(condition, lambda: value, lambda: otherwise)  # Copies nothing.

  def choose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b)

  return tf.nest.map_structure(choose, value, otherwise)


def _clip(
  gradients: corrections.Weights, clip_norm: float, size: int | None
) -> corrections.Weights:
  """Scales gradients down to the 2-norm `clip_norm`; for a group client by client."""
  dtypes = {g.dtype for g in gradients}
  if size is None and len(dtypes) == 1 and next(iter(dtypes)).size >= 4:
    return tuple(tf.clip_by_global_norm(gradients, clip_norm)[0])
  # TensorFlow's function squares in 16 bits, which overflows above 255, and wants one dtype.
  norm = tf.sqrt(corrections.squared_norm(gradients, size))
  factor = clip_norm / tf.maximum(norm, clip_norm)
  return corrections.combine(lambda g: corrections.scale(factor, g), gradients)
