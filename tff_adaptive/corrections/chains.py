"""Puts parts of a federated optimizer together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import (
  base,
  downward,
  memories,
  messages,
  optimizer_slots as slots_lib,
  results,
)
from tff_adaptive.corrections.base import (
  Batch,
  ClientRound,
  Correction,
  NamedWeight,
  ServerRound,
  Weights,
)


def chain(*parts: Correction) -> Correction:
  """Returns the part that consists of the given parts.

  At a client they act in order, and at the server in reverse order: what was applied last is undone
  first. `chain()` changes nothing, which gives FedAvg; `chain(a)` is a itself. Chains can be parts.

  Raises:
    TypeError: If an argument is no `Correction`.
    ValueError: If two parts exclude each other, or are of the same class.
  """
  flat: list[Correction] = []
  given: list[Correction] = []
  for part in parts:
    if not isinstance(part, Correction):
      raise TypeError(
        f'the parts of a chain must be corrections, found {part!r}: give'
        ' tff_adaptive.corrections.FedProx(mu=0.01), say'
      )
    # `given` has a compressor as it was given, with its feedback, for the check of the order; in
    # `flat` the part that keeps its memory stands before it.
    if isinstance(part, Chain):
      given += part.parts
    else:
      given.append(part)
    # Parts that change nothing are left out.
    flat += [one for one in part.parts if type(one) is not Correction]
  messages.check(given)
  check(flat)
  if not flat:
    return Correction()
  if len(flat) == 1:
    return flat[0]
  return Chain(tuple(flat))


def check(parts: Sequence[Correction | type[Correction]]) -> None:
  """Raises ValueError if parts, or classes of parts, exclude each other, from what they declare."""
  slots_lib.of_parts(parts)
  names = [part.name for part in parts]
  for name in names:
    if names.count(name) > 1:
      raise ValueError(f'{name} stands more than once in {"+".join(names)}: name it once.')
  # Both orders of each pair: one part declares, the other is what it excludes, wherever they stand.
  for part in parts:
    for other in parts:
      if other is part:
        continue
      if part.makes_step and other.assumes_sgd:
        raise ValueError(
          f'{part.name} cannot be combined with {other.name}: {part.name} {part.makes_step}, and'
          f' {other.name} needs plain SGD ({other.assumes_sgd}); leave one of them out.'
        )
      if part.refuses_loss_gradient and other.overrides('loss_gradient'):
        raise ValueError(
          f'{part.name} cannot be combined with {other.name}: {part.refuses_loss_gradient}; leave'
          ' one of them out.'
        )


class Chain(Correction):
  """Several parts, made by `chain`.

  States, broadcasts and uploads are tuples with one for each part, or () if no part has one.
  """

  def __init__(self, parts: tuple[Correction, ...]) -> None:
    self._parts = parts

  def __repr__(self) -> str:
    return f'chain({", ".join(map(repr, self._parts))})'

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Chain) and self._parts == other._parts

  def __hash__(self) -> int:
    return hash(self._parts)

  @property
  def parts(self) -> tuple[Correction, ...]:
    return self._parts

  # What parts declare as attributes of their class, a chain finds from its parts; hence properties,
  # and methods of the object where parts have class methods.
  @property
  def name(self) -> str:  # type: ignore[override]
    return '+'.join(part.name for part in self._parts)

  @property
  def compresses_down(self) -> bool:  # type: ignore[override]
    return any(part.compresses_down for part in self._parts)

  @property
  def needs_num_examples(self) -> bool:
    return any(part.needs_num_examples for part in self._parts)

  def overrides(self, *methods: str) -> bool:  # type: ignore[override]
    return any(part.overrides(*methods) for part in self._parts)

  def keeps_client_state(self) -> bool:  # type: ignore[override]
    return any(part.keeps_client_state() for part in self._parts)

  @property
  def needs_batching(self) -> str:  # type: ignore[override]
    return next(filter(None, (part.needs_batching for part in self._parts)), '')

  @property
  def optimizer_slots(self) -> Mapping[str, str]:  # type: ignore[override]
    return slots_lib.of_parts(self._parts)

  @property
  def stays(self) -> tuple[bool, ...]:  # type: ignore[override]
    return functools.reduce(base.either, (part.stays for part in self._parts))

  @property
  def frozen(self) -> tuple[bool, ...]:  # type: ignore[override]
    return functools.reduce(base.either, (part.frozen for part in self._parts))

  def resolved(self, weights: Sequence[NamedWeight]) -> Correction:
    return Chain(tuple(part.resolved(weights) for part in self._parts))

  def client_state(self, weights: Weights) -> Any:
    states = [part.client_state(weights) for part in self._parts]
    complete = memories.with_memories(self._parts, states, weights)
    return self._joined('client_state', complete)

  def server_state(self, weights: Weights) -> Any:
    states = [part.server_state(weights) for part in self._parts]
    complete = downward.with_shadows(self._parts, states, weights)
    return self._joined('server_state', complete)

  def broadcast(self, server_state: Any) -> Any:
    sent = [part.broadcast(_of_part(server_state, i)) for i, part in enumerate(self._parts)]
    return self._joined('broadcast', sent)

  def exchange(self, client: ClientRound) -> Any:
    sent = [part.exchange(_client_of(client, i)) for i, part in enumerate(self._parts)]
    return self._joined('exchange', sent)

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    for i, part in enumerate(self._parts):
      theta = results.begin(part, _client_of(client, i), theta)
    return theta

  def begin_kept(self, client: ClientRound, theta: Weights) -> Weights:
    for i, part in enumerate(self._parts):
      if any(part.stays):
        theta = results.begin(part, _client_of(client, i), theta)
    return theta

  def local_state(self, client: ClientRound) -> Any:
    states = [part.local_state(_client_of(client, i)) for i, part in enumerate(self._parts)]
    return self._joined('local_state', states)

  def point(self, client: ClientRound, theta: Weights) -> Weights:
    for i, part in enumerate(self._parts):
      theta = results.point(part, _client_of(client, i), theta)
    return theta

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    for i, part in enumerate(self._parts):
      batch = batch._replace(loss=results.loss(part, _client_of(client, i), batch))
    return batch.loss

  def loss_gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    # A part's `gradient_at` is that of the parts before it: SAM behind another part that changes
    # the gradient takes both of its gradients as that part does.
    gradient_at = client.gradient_at
    for i, part in enumerate(self._parts):
      if part.overrides('loss_gradient'):
        client_of_part = _client_of(client, i)._replace(gradient_at=gradient_at)
        gradient_at = _taken_by(part, client_of_part)
        g = part.loss_gradient(client_of_part, theta, g)
    return g

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    local_states = []
    for i, part in enumerate(self._parts):
      g, local_state = results.gradient(part, _client_of(client, i), theta, g)
      local_states.append(local_state)
    if self.overrides('local_state'):
      return g, tuple(local_states)
    return g

  def moved(self, client: ClientRound, before: Weights, after: Weights) -> Weights:
    for i, part in enumerate(self._parts):
      after = results.moved(part, _client_of(client, i), before, after)
    return after

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    update = g_i
    for i, part in enumerate(self._parts):
      update = results.update(part, _client_of(client, i), update, steps)
    return update

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # All parts see the same g_i, the move of the whole client, and not what `update` made of it.
    states = []
    uploads = []
    for i, part in enumerate(self._parts):
      state, upload = results.client_update(part, _client_of(client, i), g_i, steps)
      states.append(state)
      uploads.append(upload)
    return self._joined('client_state', states), self._joined('client_update', uploads)

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    for i, part in enumerate(self._parts):
      theta = part.personal(_of_part(client_state, i), theta)
    return theta

  def restore(self, server: ServerRound) -> Weights:
    for i, part in reversed(list(enumerate(self._parts))):
      server = server._replace(g_bar=part.restore(_server_of(server, i)))
    return server.g_bar

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    new_states: list[Any] = []
    factor: Any = ()
    for i, part in reversed(list(enumerate(self._parts))):
      state, direction, own_factor = results.server_update(
        part, _of_part(server_state, i), _server_of(server, i)
      )
      # The part before this one gets this direction, so that h of both are in it.
      server = server._replace(g_bar=direction)
      new_states.insert(0, state)
      # Factors of several parts multiply; without any, () keeps a multiplication by 1 away.
      if not tf.nest.flatten(own_factor):
        continue
      if tf.nest.flatten(factor):
        own_factor = factor * own_factor
      factor = own_factor
    new_state = self._joined('server_state', new_states)
    if tf.nest.flatten(factor):
      return new_state, server.g_bar, factor
    return new_state, server.g_bar

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    """Returns the model of the first part that has one of its own."""
    for i, part in enumerate(self._parts):
      weights = part.inference_weights(_of_part(server_state, i), theta, theta_bar)
      if weights is not None:
        return weights
    return None

  def _joined(self, method: str, values: Sequence[Any]) -> Any:
    """Returns the parts' values as a tuple, or () if no part has the method that gives them."""
    # () as of a single part without the method: callers ask whether there is anything to send.
    if self.overrides(method):
      return tuple(values)
    return ()


def _of_part(values: Any, i: int) -> Any:
  """Returns the i-th part's value; () if no part has one."""
  if not values:
    return ()
  return values[i]


def _client_of(client: ClientRound, i: int) -> ClientRound:
  """Returns what the i-th part of a chain knows of a client's round."""
  return client._replace(
    client_state=_of_part(client.client_state, i),
    broadcast=_of_part(client.broadcast, i),
    exchanged=_of_part(client.exchanged, i),
    local_state=_of_part(client.local_state, i),
  )


def _server_of(server: ServerRound, i: int) -> ServerRound:
  """Returns what the i-th part of a chain knows of the server's round."""
  return server._replace(
    uploads=_of_part(server.uploads, i), exchanged=_of_part(server.exchanged, i)
  )


def _taken_by(part: Correction, client: ClientRound) -> Callable[[Weights], Weights]:
  """Returns a function (weights) -> the gradient there that a part's `loss_gradient` takes."""

  def gradient_at(point: Weights) -> Weights:
    return part.loss_gradient(client, point, client.gradient_at(point))

  return gradient_at


def weigh_uploads(correction: Correction, uploads: Any, weight: Callable[[Any], Any]) -> Any:
  """Returns a client's uploads, with `weight` applied to those of parts that weigh them."""
  # Without any upload `uploads` is (), and so is the result of the loop.
  if isinstance(correction, Chain):
    pairs = zip(correction.parts, uploads)
    return tuple(weigh_uploads(part, upload, weight) for part, upload in pairs)
  if correction.combine_uploads == 'weighted':
    return weight(uploads)
  return uploads


def combine_uploads(correction: Correction, sums: Any, cohort: tf.Tensor, weight: tf.Tensor) -> Any:
  """Returns the cohort's combined uploads, as `Correction.combine_uploads` of each part says.

  Args:
    correction: The correction.
    sums: The sums over the cohort of what `weigh_uploads` returned.
    cohort: The number of clients in the sums, float32, at least 1.
    weight: The sum of the clients' weights, float32.

  Raises:
    ValueError: If a part combines its uploads in an unknown way.
  """
  if isinstance(correction, Chain):
    pairs = zip(correction.parts, sums)
    return tuple(combine_uploads(part, of_part, cohort, weight) for part, of_part in pairs)
  if correction.combine_uploads == 'sum':
    return sums
  # 'weighted' has the weights in its sum already, from `weigh_uploads` at the clients.
  counts = {'mean': cohort, 'weighted': weight}
  if correction.combine_uploads not in counts:
    raise ValueError(
      f'{type(correction).__name__} has combine_uploads {correction.combine_uploads!r}: give'
      " 'mean', 'weighted' or 'sum'."
    )
  count = counts[correction.combine_uploads]
  return tf.nest.map_structure(lambda leaf: base.mean(leaf, count), sums)
