"""The base class of a federated optimizer's parts, and functions to write them with.

The formulas of this package have these symbols. theta^{t-1} is the global model before round t,
theta a client's model in a local step, and g the gradient of a batch's loss at theta. Client i ends
at theta_i, and its update (pseudo-gradient) is g_i = theta^{t-1} - theta_i. g-bar is the mean of
the g_i, with the weights of the updates, and theta-bar = theta^{t-1} - g-bar the mean of the client
models. n_i and K_i are a client's numbers of examples and local steps, eta_l is the client learning
rate of the round, S the cohort, and N the number of all clients. h_i and h are the drift estimates
(or control variates) of a client and of the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from tff_adaptive._utils import hyperparameters, validation
from tff_adaptive._utils.hyperparameters import option as option
from tff_adaptive._utils.lazy_tensorflow import tf

# The help of hyperparameters that several parts have.
MU = "Weight of the client's correction"
SCALE_MU = 'Scale mu by mean examples / examples of the client'

if TYPE_CHECKING:
  Weights: TypeAlias = tuple[tf.Tensor, ...]
else:  # Its use in annotations must not import TensorFlow.
  Weights = tuple


class ClientRound(NamedTuple):
  """The values that a client knows during a round.

  Attributes:
    theta_0: theta^{t-1}, the weights that the client received.
    client_state: The client's state after the last round in which it took part, or its first state.
    broadcast: The values that the server sent besides the weights (see `Correction.broadcast`).
    t: Number of the round, float32, counted from 1.
    eta_l: The client learning rate of this round, float32.
    num_examples: n_i, float32. Without `Batching` it is NaN until the local steps are done.
    full_gradient: A function () -> the mean gradient over the client's examples at `theta_0`.
    mean_steps: `Batching.local_steps`, the mean number of local steps in a round, or None.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
    local_state: The state that `Correction.local_state` or the last call of `gradient` returned.
    gradient_at: A function (weights) -> the gradient of the batch's loss at these weights, with the
      same dropout. It is for `Correction.loss_gradient`, and for `Correction.gradient`, where it
      takes the gradient as `g` was taken: sharpness-aware, say.
  """

  theta_0: Weights
  client_state: Any
  broadcast: Any
  t: tf.Tensor
  eta_l: tf.Tensor
  num_examples: tf.Tensor
  full_gradient: Callable[[], Weights]
  mean_steps: float | None = None
  exchanged: Any = ()
  local_state: Any = ()
  gradient_at: Callable[[Weights], Weights] = lambda _: ()


class ServerRound(NamedTuple):
  """The values that the server knows at the end of a round.

  Attributes:
    g_bar: The aggregated pseudo-gradient theta^{t-1} - theta-bar^t, as `Correction.restore`
      returns it from the aggregate of the results of `update`. In `restore` itself, that aggregate;
      in `server_update`, the direction that the parts after this one in a chain returned.
    uploads: The uploads of `client_update`, combined over the cohort as `combine_uploads` says.
    cohort: |S|, float32: the number of clients that took a local step and have finite results.
    t: Number of the round, float32, counted from 1.
    theta: theta^{t-1}, the global model before the round.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
  """

  g_bar: Weights
  uploads: Any
  cohort: tf.Tensor
  t: tf.Tensor
  theta: Weights
  exchanged: Any = ()


class RegisteredClients(NamedTuple):
  """Facts about all clients that a correction may need before training.

  Attributes:
    num_clients: N, the number of registered clients.
    mean_examples: The mean number of examples that a client trains on.
  """

  num_clients: int
  mean_examples: float


class Correction:
  """A part of a federated optimizer, whose methods are pure functions of tensors.

  The base class changes nothing, which gives FedAvg. A subclass overrides the methods that it
  needs. Methods that run at a client get the tensors of one client, even if clients train together.
  `corrections.chain` puts several parts together.

  A subclass is a frozen dataclass. The fields declared with `corrections.option` are its
  hyperparameters, and the following class attributes describe it; nothing else does.

  Attributes:
    name: Its name on the command line.
    title: Its name in papers and reports; by default the same as `name`.
    summary: One line, without a full stop; by default the first line of the docstring.
    paper: The publication.
    combine_uploads: How the cohort's uploads are combined: 'mean' counts each client the same,
      'weighted' takes the mean with the weights of the updates, and 'sum' adds them.
    client_weighting: The clients' weights in the mean of the updates unless others are asked for,
      'examples' or 'uniform'. None means 'uniform' if clients keep a state, else 'examples'.
    assumes_sgd: The reason why clients must train with plain SGD, for messages; '' for none.
    makes_step: The reason why the result of `gradient` is no gradient but a step of its own, in
      which another part that assumes SGD would be wrong; '' for none.
    refuses_loss_gradient: The reason why no other part may say where the loss's gradient is taken,
      as SAM does; '' for none.
    uploads_what: What a client sends besides its update that moves the model, for messages; ''
      for none.
    compresses: Whether it compresses all messages of a client; see `corrections.Compressor`.
  """

  name: ClassVar[str] = 'none'
  title: ClassVar[str] = ''
  summary: ClassVar[str] = ''
  paper: ClassVar[str] = ''
  combine_uploads: ClassVar[str] = 'mean'
  client_weighting: ClassVar[str | None] = None
  assumes_sgd: ClassVar[str] = ''
  makes_step: ClassVar[str] = ''
  refuses_loss_gradient: ClassVar[str] = ''
  uploads_what: ClassVar[str] = ''
  compresses: ClassVar[bool] = False

  def __post_init__(self) -> None:
    for declared in hyperparameters.declared_by(type(self)):
      object.__setattr__(self, declared.name, declared.checked(getattr(self, declared.name)))
    num_clients = getattr(self, 'num_clients', 1)
    validation.whole_number('num_clients', num_clients, 1, 'give the number of all clients')

  @property
  def parts(self) -> tuple[Correction, ...]:
    """The parts of a chain in order; of a single part, the part itself."""
    return (self,)

  @property
  def needs_num_examples(self) -> bool:
    """Whether `gradient` uses `ClientRound.num_examples`.

    By default it does if the field `mean_examples` exists and is not None. The number of examples
    is known before training only with `ClientTraining.batching`.
    """
    return getattr(self, 'mean_examples', None) is not None

  @classmethod
  def registered(cls, clients: RegisteredClients | None) -> dict[str, Any]:
    """Returns the fields that are set from the registered clients, such as `num_clients`.

    Raises:
      ValueError: If there are such fields, and `clients` is None.
    """
    fields: tuple[Any, ...] = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    names: list[str] = [field.name for field in fields if field.name in RegisteredClients._fields]
    if names and not isinstance(clients, RegisteredClients):
      raise ValueError(
        f'{cls.name} needs to know the registered clients: give '
        'clients=tff_adaptive.corrections.RegisteredClients(num_clients, mean_examples).'
      )
    return {name: getattr(clients, name) for name in names}

  @classmethod
  def configure(
    cls, values: Mapping[str, Any], clients: RegisteredClients | None = None
  ) -> Correction:
    """Returns the correction with the given hyperparameters.

    The fields `num_clients` and `mean_examples` of a dataclass are set from `clients`.

    Args:
      values: Hyperparameters by name.
      clients: The registered clients; None if they are not known.

    Raises:
      TypeError: If a value has the wrong type.
      ValueError: If a value is out of its range, or the correction needs `clients` and has None.
    """
    return cls(**values, **cls.registered(clients))

  @classmethod
  def published_counts(cls, values: Mapping[str, Any]) -> hyperparameters.Counts | None:
    """Returns the published costs with these hyperparameters; None where tracing finds them."""
    return None

  @classmethod
  def overrides(cls, *methods: str) -> bool:
    """Returns whether the class overrides at least one of the named methods."""
    return any(getattr(cls, name) is not getattr(Correction, name) for name in methods)

  @classmethod
  def keeps_client_state(cls) -> bool:
    """Returns whether clients keep a state between the rounds they take part in."""
    return cls.overrides('client_state')

  def client_state(self, weights: Weights) -> Any:
    """Returns a client's state before its first round, from the initial weights.

    If a model function draws its weights at random, `weights` are not those of the server.
    """
    return ()

  def server_state(self, weights: Weights) -> Any:
    """Returns the server's state before the first round, from the initial weights."""
    return ()

  def broadcast(self, server_state: Any) -> Any:
    """Returns the values that the server sends to the clients in addition to the weights."""
    return ()

  def exchange(self, client: ClientRound) -> Any:
    """Returns the values that a client sends before it trains; () for none.

    The cohort then receives the mean of these values as `client.exchanged`. If `client_weighting`
    is 'examples', a client's weight in the mean is its number of examples, else 1. A client with
    values that are not finite is left out.
    """
    return ()

  def local_state(self, client: ClientRound) -> Any:
    """Returns the first value of a state that each local step passes to the next; () for none."""
    return ()

  def loss_gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns the gradient that stands for the loss's in a local step, by default g.

    `g` is the gradient of the batch's loss at `theta`, and `client.gradient_at` gives it at other
    weights. The `gradient` methods of all parts come after it.
    """
    return g

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    """Returns the corrected gradient of a local step; `g` is the gradient of the loss at `theta`.

    In a chain `g` is what the part before this one returned. A correction with a `local_state`
    returns the pair `(gradient, local_state)`. The state after the previous local step is
    `client.local_state`.
    """
    return g

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    """Returns the value to aggregate, by default g_i; `client_update` explains the arguments.

    In a chain the parts act in order, and `g_i` is what the part before this one returned. A part
    whose update is in other units also overrides `restore`.
    """
    return g_i

  def message_bits(self, size: int) -> int | None:
    """Returns the bits of a client's update of `size` numbers; None for the size of the weights.

    A part whose `update` returns what a server decodes of fewer bits says here how many were sent.
    """
    return None

  def restore(self, server: ServerRound) -> Weights:
    """Returns the mean pseudo-gradient; `server.g_bar` is the aggregate of the results of `update`.

    It undoes what `update` did to all clients alike. In a chain it is called in reverse order.
    """
    return server.g_bar

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    """Returns the client's new state, and the values that it uploads in addition to its update.

    Args:
      client: The values that the client knew during the round.
      g_i: theta^{t-1} - theta_i, the client's pseudo-gradient.
      steps: K_i, the number of local steps that the client took, float32.

    Returns:
      The pair `(client_state, upload)`. `combine_uploads` says how uploads are combined. If a
      number in the state, the upload or the update is not finite, the client counts as diverged: it
      is left out of the round and keeps its previous state.
    """
    return client.client_state, ()

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    """Returns the new server state and the direction that the server optimizer descends along.

    `server_state` is the state before the round, and `server` has the results of the cohort. If a
    third value is returned, a float32 scalar, the server optimizer's step is multiplied by it. In a
    chain the parts act in reverse order, and each gets the direction of the one after it.
    """
    return server_state, server.g_bar

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    """Returns the model for inference after a round; None for the global model.

    Args:
      server_state: The state after the round.
      theta: The global model after the round.
      theta_bar: theta^{t-1} - g_bar, the mean of the client models.

    Returns:
      By default theta_bar if clients keep a state, because h moves theta away from it; else None.
    """
    return theta_bar if self.keeps_client_state() else None


def estimate(state: Any) -> Weights:
  """Returns the drift estimate of a server's state (h) or a client's (h_i); () if it has none.

  It is the entry or field `h` of the state, weights or one tensor, or those of the states of a
  chain's parts. Metrics use it, and count a client whose h_i is zero as one that takes part for the
  first time.
  """
  if isinstance(state, Mapping):
    return tuple(tf.nest.flatten(state.get('h', ())))
  if hasattr(state, 'h'):
    return tuple(tf.nest.flatten(state.h))
  if not isinstance(state, (tuple, list)) or not any(isinstance(s, Mapping) for s in state):
    return ()
  estimates: Weights = ()
  for state_of_part in state:
    estimates += estimate(state_of_part)
  return estimates


def mean_gradient(client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
  """Returns g_i / (steps * client.eta_l), with SGD the mean corrected gradient; 0 for no steps."""
  inverse = tf.math.divide_no_nan(1.0, steps * client.eta_l)
  return combine(lambda g: scale(inverse, g), g_i)


def mean(total: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
  """Returns total / count, or 0 if the count is 0; a total of integers is cast to float32."""
  total = total if total.dtype.is_floating else tf.cast(total, tf.float32)
  return tf.math.divide_no_nan(total, tf.cast(count, total.dtype))


def zeros(weights: Weights) -> Weights:
  """Returns zeros with the shapes and dtypes of the weights."""
  return tuple(tf.zeros_like(w) for w in weights)


def combine(fn: Callable[..., tf.Tensor], *trees: Weights) -> Weights:
  """Returns `fn` of the first tensors of all trees, `fn` of their second tensors, and so on."""
  return tuple(fn(*leaves) for leaves in zip(*trees))


def scale(factor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
  """Returns factor * weight in the weight's dtype; a factor [G] multiplies a weight [G, ...]."""
  factor = tf.cast(factor, weight.dtype)
  if factor.shape.rank:
    factor = tf.reshape(factor, [-1] + [1] * (weight.shape.rank - 1))
  return factor * weight


def norm(tree: Weights) -> tf.Tensor:
  """Returns the 2-norm of all weights together, float32."""
  return tf.sqrt(squared_norm(tree))


def squared_norm(tree: Weights, group_size: int | None = None) -> tf.Tensor:
  """Returns the squared 2-norm of all weights together, float32; [G] for a group of G clients."""
  if not tree:
    return tf.zeros([] if group_size is None else [group_size])
  # In 16 bits a square overflows for weights above 255 and vanishes below 2^-12.
  wide = [w if w.dtype.size > 4 else tf.cast(w, tf.float32) for w in tree]
  # `tf.nn.l2_loss` would be a loop over the clients of a group.
  rows = [tf.reshape(w, [-1] if group_size is None else [group_size, -1]) for w in wide]
  return tf.add_n([tf.cast(tf.reduce_sum(r * r, -1), tf.float32) for r in rows])
