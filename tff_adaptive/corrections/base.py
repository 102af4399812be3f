"""What a client correction is."""

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
    theta_0: theta^{t-1}, the weights that it received.
    client_state: Its state since it last took part (see `Correction.client_state`).
    broadcast: What the server sent in addition to the weights (see `Correction.broadcast`).
    t: Number of the round, float32, counted from 1.
    eta_l: The client learning rate of this round, float32.
    num_examples: n_i, float32.
    full_gradient: Computes the mean gradient over all its examples at `theta_0`.
    mean_steps: The mean number of local steps in a round where `Batching.local_steps` gives it, for
      all clients alike; else None.
    exchanged: The cohort's mean of what clients sent before training (see `Correction.exchange`).
    local_state: What `Correction.local_state` began with and `gradient` returned since.
    gradient_at: Computes the gradient of the current batch's loss at other weights, with the same
      dropout, and sharpness-aware where `g` is; in `Correction.gradient` only.
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
    g_bar: The aggregate of what `update` gave: theta^{t-1} - theta-bar^t, the aggregated
      pseudo-gradient, unless a correction overrides it.
    uploads: What `client_update` uploaded, combined over the cohort as `combine_uploads` says.
    cohort: |S|, the number of clients whose update is used (finite, of a step at least), float32.
    t: Number of the round, float32, counted from 1.
    theta: theta^{t-1}, the global model before the round.
    exchanged: The mean of what clients sent before training, see `Correction.exchange`.
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
  """A client drift correction: pure functions of tensors.

  The base class corrects nothing: it is FedAvg. A subclass overrides what it needs. The functions
  of a client see the tensors of one client, also where several clients train together.

  Attributes:
    name: Its name in the registry.
    combine_uploads: How the cohort's uploads become one: 'mean', each client counting the same;
      'weighted', the mean with the weights of the updates; or 'sum'.
  """

  name = 'none'
  combine_uploads = 'mean'
  # Of the registry, by which fields that are hyperparameters are checked; None: no check.
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
    """Whether `gradient` uses `ClientRound.num_examples`; by default of one with `mean_examples`.

    It is known before training for clients given as whole arrays only.
    """
    return getattr(self, 'mean_examples', None) is not None

  @classmethod
  def configure(
    cls, values: Mapping[str, Any], clients: RegisteredClients | None = None
  ) -> 'Correction':
    """Returns the correction with the hyperparameters that the registry names.

    A field of a dataclass that is called as one of `RegisteredClients` takes its value from there.

    Args:
      values: Hyperparameter -> value, by the names of the class's entry in the registry.
      clients: The registered clients; None where they are not known.

    Raises:
      TypeError: If a value is of another kind.
      ValueError: If a value is out of its range, or the correction needs to know the clients.
    """
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    needed = [f.name for f in fields if f.name in RegisteredClients._fields]
    known = cls._known(clients)._asdict() if needed else {}
    return cls(**values, **{name: known[name] for name in needed})

  @classmethod
  def overrides(cls, *methods: str) -> bool:
    """Whether the class has one of these methods of its own."""
    return any(getattr(cls, name) is not getattr(Correction, name) for name in methods)

  @classmethod
  def keeps_client_state(cls) -> bool:
    """Whether clients keep a state between the rounds they take part in."""
    return cls.overrides('client_state')

  @classmethod
  def _known(cls, clients: RegisteredClients | None) -> RegisteredClients:
    """Returns the registered clients; ValueError where they are not known."""
    if not isinstance(clients, RegisteredClients):
      raise ValueError(
        f'{cls.name} needs to know the registered clients: give '
        'clients=tff_adaptive.corrections.RegisteredClients(num_clients, mean_examples).'
      )
    return clients

  def client_state(self, weights: Weights) -> Any:
    """A client's state before its first round, from the initial weights.

    A function that draws a model's weights at random draws these anew, when the process is built.
    """
    return ()

  def server_state(self, weights: Weights) -> Any:
    """The correction's state at the server before the first round, from the initial weights."""
    return ()

  def broadcast(self, server_state: Any) -> Any:
    """Returns what the server sends to the clients in addition to the weights."""
    return ()

  def exchange(self, client: ClientRound) -> Any:
    """What a client sends before it trains; () for nothing.

    All clients receive the mean over the cohort, with the weights of the updates, as
    `client.exchanged`. A client that sends a number which is not finite does not count.
    """
    return ()

  def local_state(self, client: ClientRound) -> Any:
    """What is carried from local step to local step, before the first; () for nothing."""
    return ()

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    """The corrected gradient of a local step at `theta`, where the loss has gradient `g`.

    A correction with a `local_state` returns the pair `(gradient, local_state)`, and finds the
    former one in `client.local_state`.
    """
    return g

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    """What goes through the aggregator in place of g_i; arguments as of `client_update`."""
    return g_i

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    """The client's new state, and what it uploads in addition to its model.

    Args:
      client: What it knew during the round.
      g_i: theta^{t-1} - theta_i, its pseudo-gradient.
      steps: K_i, the number of local steps it took, float32.

    Returns:
      `(client_state, upload)`; `combine_uploads` says what becomes of the uploads. A client of
      which a number in either is NaN or infinite counts as diverged, as one whose g_i is not
      finite: it is left out of the round and keeps the state that it had.
    """
    return client.client_state, ()

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    """The new server state and the direction that the server optimizer descends along.

    A third value, a float32 scalar, is a factor of the step that the server optimizer then takes.
    """
    return server_state, server.g_bar

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    """The model to use after a round; None for theta, the global model.

    Args:
      server_state: After the round.
      theta: The global model after the round.
      theta_bar: theta^{t-1} - g_bar, the mean of the client models.

    Returns:
      By default theta-bar for a correction whose clients keep a state: h moves theta away from the
      clients' models.
    """
    return theta_bar if self.keeps_client_state() else None


def estimate(state: Any) -> Weights:
  """h in a state of the server, or h_i in a client's, for metrics; () where there is none.

  It is the state's entry or field `h`: weights, or one tensor. A client whose h_i is zero counts as
  one that had not taken part before.
  """
  h = state.get('h', ()) if isinstance(state, Mapping) else getattr(state, 'h', ())
  return tuple(tf.nest.flatten(h))


def mean_gradient(client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
  """g_i / (K_i eta_l), the mean direction of a client's local steps; 0 if it took none."""
  inverse = tf.math.divide_no_nan(1.0, steps * client.eta_l)
  return combine(lambda g: scale(inverse, g), g_i)


def zeros(weights: Weights) -> Weights:
  """Zeros like the weights."""
  return tuple(tf.zeros_like(w) for w in weights)


def combine(fn: Callable[..., tf.Tensor], *trees: Weights) -> Weights:
  """Applies `fn` weight by weight."""
  return tuple(fn(*leaves) for leaves in zip(*trees))


def scale(factor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
  """factor * weight in the weight's dtype; a factor [G] has one number for each row."""
  factor = tf.cast(factor, weight.dtype)
  if factor.shape.rank:
    factor = tf.reshape(factor, [-1] + [1] * (weight.shape.rank - 1))
  return factor * weight


def norm(tree: Weights) -> tf.Tensor:
  """The 2-norm of all weights together, float32."""
  return tf.sqrt(squared_norm(tree))


def squared_norm(tree: Weights, group_size: int | None = None) -> tf.Tensor:
  """The squared 2-norm of all weights together, float32; [G] for a group of clients."""
  if not tree:
    return tf.zeros([] if group_size is None else [group_size])
  # Squares of 16 bits overflow above 255 and vanish below 2^-12.
  wide = [w if w.dtype.size > 4 else tf.cast(w, tf.float32) for w in tree]
  # `tf.nn.l2_loss` would be a loop over the clients of a group.
  rows = [tf.reshape(w, [-1] if group_size is None else [group_size, -1]) for w in wide]
  return tf.add_n([tf.cast(tf.reduce_sum(r * r, -1), tf.float32) for r in rows])
