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

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tff_adaptive._utils import hyperparameters, validation
from tff_adaptive._utils.hyperparameters import option as option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive._utils.weight_groups import NamedWeight as NamedWeight
from tff_adaptive.corrections.algebra import (
  Weights as Weights,
  combine as combine,
  either as either,
  estimate as estimate,
  head_shape as head_shape,
  mean as mean,
  mean_gradient as mean_gradient,
  merged as merged,
  norm as norm,
  only as only,
  scale as scale,
  squared_norm as squared_norm,
  zeros as zeros,
)
from tff_adaptive.corrections.batch import Batch as Batch
from tff_adaptive.corrections.rounds import ClientRound as ClientRound, ServerRound as ServerRound

# The help of hyperparameters that several parts have.
MU = "Weight of the client's correction"
SCALE_MU = 'Scale mu by mean examples / examples of the client'


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
    compresses_down: Whether it compresses what clients receive; see `corrections.Downward`.
    adds_up: Which messages of a client the server adds up over rounds, 'update' and 'upload': what
      compression leaves out of these is to be sent later, or taken back; see `after_loss`.
    evaluates_mean: Whether the mean of the client models is evaluated beside the global model, if
      clients keep a state.
    sends_whole: Whether all numbers of the result of `update` are sent as they are, because it only
      changes their values; then it needs no `message_bits`. Without both, the size of the weights
      counts, and the run says that less may be sent.
    sends_exact: Whether what it sends besides the update and the model is never compressed.
    needs_batching: The reason why clients must be given as whole arrays, for messages; '' for none.
    one_step: What a client's training that has one local step a round fails to do, for messages; ''
      if one step is as good as several.
    optimizer_slots: What becomes of named slots of the client optimizer after a round, in place of
      `ClientTraining.optimizer_state`: name -> one of `optimizer_slots.RULES`. 'm:matrices' is the
      slot m of weights with two axes or more, 'm:vectors' that of the others.
    stays: For each weight whether it stays at the client, or () for none. Such a weight is neither
      sent nor aggregated; the client begins with what `begin` returns for it.
    frozen: For each weight whether it never changes, or () for none. Such a weight is not sent
      either.
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
  compresses_down: ClassVar[bool] = False
  adds_up: ClassVar[tuple[str, ...]] = ()
  sends_whole: ClassVar[bool] = False
  sends_exact: ClassVar[bool] = False
  needs_batching: ClassVar[str] = ''
  one_step: ClassVar[str] = ''
  optimizer_slots: ClassVar[Mapping[str, str]] = MappingProxyType({})
  evaluates_mean: ClassVar[bool] = True
  stays: tuple[bool, ...] = ()
  frozen: tuple[bool, ...] = ()

  def __post_init__(self) -> None:
    # Not `self.x = ...`, which a frozen dataclass refuses. `checked` makes 1 of a float field 1.0.
    for declared in hyperparameters.declared_by(type(self)):
      object.__setattr__(self, declared.name, declared.checked(getattr(self, declared.name)))
    # N is no hyperparameter but a fact of the data; parts divide by it. Most have none.
    num_clients = getattr(self, 'num_clients', 1)
    validation.whole_number('num_clients', num_clients, 1, 'give the number of all clients')

  @property
  def parts(self) -> tuple[Correction, ...]:
    """The parts of a chain in order; of a single part, the part itself."""
    return (self,)

  def resolved(self, weights: Sequence[NamedWeight]) -> Correction:
    """Returns the part for a model with these weights; a builder calls it once.

    A part that treats some weights differently finds them by name or kind here, with
    `weight_groups.select`, and returns the result of `with_groups`.

    Raises:
      ValueError: If the model has no such weights.
    """
    return self

  def with_groups(self, stays: tuple[bool, ...] = (), frozen: tuple[bool, ...] = ()) -> Correction:
    """Returns a copy of the part with these `stays` and `frozen`."""
    # The two are no fields, so `dataclasses.replace` does not know them.
    copied = copy.copy(self)
    object.__setattr__(copied, 'stays', stays)
    object.__setattr__(copied, 'frozen', frozen)
    return copied

  @property
  def unsent(self) -> tuple[bool, ...]:
    """For each weight whether it is not sent, because it stays or is frozen; () for none."""
    return either(self.stays, self.frozen)

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
    # The base class is no dataclass, and a user's part without hyperparameters need not be one.
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

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    """Returns the weights with which a client begins its local steps, by default theta.

    `theta` is theta^{t-1}; in a chain, what the part before this one returned. The client's update
    is still theta^{t-1} - theta_i, except for weights that stay at the client, whose change it is.
    """
    return theta

  def begin_kept(self, client: ClientRound, theta: Weights) -> Weights:
    """Returns weights of which those that stay are the client's own; `begin` for a single part.

    A chain asks only the parts that keep weights: to the others such a weight was received as the
    client has it, and what moves the received model must not move it before.
    """
    return self.begin(client, theta)

  def local_state(self, client: ClientRound) -> Any:
    """Returns the first value of a state that each local step passes to the next; () for none."""
    return ()

  def point(self, client: ClientRound, theta: Weights) -> Weights:
    """Returns the weights at which a local step takes its gradient, by default theta.

    The step still moves theta. It costs one gradient, where `loss_gradient` costs a second one.
    Training metrics are those at this point.
    """
    return theta

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    """Returns the loss of a batch that a local step descends along, by default `batch.loss`.

    In a chain `batch.loss` is what the part before this one returned. Training metrics are those of
    the model's own loss. The model must be a `models.Model`.
    """
    return batch.loss

  def loss_gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns the gradient that stands for the loss's in a local step, by default g.

    `g` is the gradient of the batch's loss at `theta`, which is the result of `point`, and
    `client.gradient_at` gives it at other weights. The `gradient` methods of all parts come after
    it.
    """
    return g

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    """Returns the corrected gradient of a local step; `g` is the gradient of the loss at `theta`.

    In a chain `g` is what the part before this one returned. A correction with a `local_state`
    returns the pair `(gradient, local_state)`. The state after the previous local step is
    `client.local_state`.
    """
    return g

  def moved(self, client: ClientRound, before: Weights, after: Weights) -> Weights:
    """Returns the weights after a local step, by default `after`.

    The client optimizer made `after` of `before`; in a chain, the part before this one did. The
    local state is the one that `gradient` returned in this step.
    """
    return after

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

  def compressed_upload(self, upload: Any, share: tf.Tensor) -> Any:
    """Returns the upload for an update that was compressed, by default as it is.

    A part whose upload measures the update overrides it. `share` is the squared norm of what the
    server decodes over that of the result of `update`, float32; 0 if that is 0.
    """
    return upload

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the client's new state if compression left out a part of its messages for good.

    A part whose states are to agree with what the server adds up (`adds_up`) overrides it.
    """
    return client_state

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    """Returns a client's own model, from its state after a round, by default theta.

    `theta` is the global model; in a chain, what the part before this one returned. Evaluation by
    client and exports use it. A client that has never taken part has the global model.
    """
    return theta

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
      theta_bar: theta^{t-1} - g_bar, the mean of the client models. If clients receive a compressed
        model, what compression left out of it is added to the mean.

    Returns:
      By default theta_bar if clients keep a state, because h moves theta away from it, and
      `evaluates_mean` is true; else None.
    """
    if self.keeps_client_state() and self.evaluates_mean:
      return theta_bar
    return None
