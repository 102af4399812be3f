"""The base class of client corrections, and functions to write them with.

The formulas of this package have these symbols. theta^{t-1} is the global model before round t,
theta a client's model in a local step, and g the gradient of a batch's loss at theta. Client i ends
at theta_i, and its update (pseudo-gradient) is g_i = theta^{t-1} - theta_i. g-bar is the mean of
the g_i, with the weights of the updates, and theta-bar = theta^{t-1} - g-bar the mean of the client
models. n_i and K_i are a client's numbers of examples and local steps, eta_l is the client learning
rate of the round, S the cohort, and N the number of all clients. h_i and h are the drift estimates
(or control variates) of a client and of the server.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from tff_adaptive import registry
from tff_adaptive._utils import validation

Weights = tuple[tf.Tensor, ...]


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
      same dropout. It is for `Correction.gradient` only, and is sharpness-aware if `g` there is.
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
    g_bar: The aggregate of the results of `update`. Unless a correction overrides `update`, this is
      the aggregated pseudo-gradient theta^{t-1} - theta-bar^t.
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
  """A client drift correction, whose methods are pure functions of tensors.

  The base class corrects nothing, which gives FedAvg. A subclass overrides the methods that it
  needs. Methods that run at a client get the tensors of one client, even if clients train together.

  Attributes:
    name: The name of the algorithm in the registry.
    combine_uploads: How the cohort's uploads are combined: 'mean' counts each client the same,
      'weighted' takes the mean with the weights of the updates, and 'sum' adds them.
  """

  name = 'none'
  combine_uploads = 'mean'
  # The registry's entry, which checks the fields that are hyperparameters; None for no check.
  _entry: ClassVar[registry.Algorithm | None] = None

  def __post_init__(self) -> None:
    if self._entry is None:
      return
    for h in self._entry.hyperparameters:
      if hasattr(self, h.name):
        object.__setattr__(self, h.name, h.checked(getattr(self, h.name)))
    num_clients = getattr(self, 'num_clients', 1)
    validation.whole_number('num_clients', num_clients, 1, 'give the number of all clients')

  @property
  def needs_num_examples(self) -> bool:
    """Whether `gradient` uses `ClientRound.num_examples`.

    By default it does if the field `mean_examples` exists and is not None. The number of examples
    is known before training only with `ClientTraining.batching`.
    """
    return getattr(self, 'mean_examples', None) is not None

  @classmethod
  def configure(
    cls, values: Mapping[str, Any], clients: RegisteredClients | None = None
  ) -> 'Correction':
    """Returns the correction with the given hyperparameters.

    The fields `num_clients` and `mean_examples` of a dataclass are set from `clients`.

    Args:
      values: Hyperparameters by name, with the names of the class's entry in the registry.
      clients: The registered clients; None if they are not known.

    Raises:
      TypeError: If a value has the wrong type.
      ValueError: If a value is out of its range, or the correction needs `clients` and has None.
    """
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    needed = [f.name for f in fields if f.name in RegisteredClients._fields]
    if needed and not isinstance(clients, RegisteredClients):
      raise ValueError(
        f'{cls.name} needs to know the registered clients: give '
        'clients=tff_adaptive.corrections.RegisteredClients(num_clients, mean_examples).'
      )
    return cls(**values, **{name: getattr(clients, name) for name in needed})

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

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    """Returns the corrected gradient of a local step; `g` is the gradient of the loss at `theta`.

    A correction with a `local_state` returns the pair `(gradient, local_state)`. The state after
    the previous local step is `client.local_state`.
    """
    return g

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    """Returns the value to aggregate, by default g_i; `client_update` explains the arguments."""
    return g_i

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
    third value is returned, a float32 scalar, the server optimizer's step is multiplied by it.
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

  It is the entry or field `h` of the state: weights, or one tensor. Metrics use it, and count a
  client whose h_i is zero as one that takes part for the first time.
  """
  h = state.get('h', ()) if isinstance(state, Mapping) else getattr(state, 'h', ())
  return tuple(tf.nest.flatten(h))


def mean_gradient(client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
  """Returns g_i / (steps * client.eta_l), with SGD the mean corrected gradient; 0 for no steps."""
  inverse = tf.math.divide_no_nan(1.0, steps * client.eta_l)
  return combine(lambda g: scale(inverse, g), g_i)


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
