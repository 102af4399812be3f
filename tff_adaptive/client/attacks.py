"""What attackers send in place of their update, for experiments; see `population.Attackers`."""

from typing import Any

import tensorflow as tf

from tff_adaptive._utils import seeds
from tff_adaptive.client import entries, local_training
from tff_adaptive.corrections import base as corrections

INNER_PRODUCT = 'inner_product'
# The weight of an attacker times this marks it for `aggregation.InnerProductFactory`. A power of
# two, so that the mark takes no digits.
MARK = -1 / 1024
_NOISE = 0x41747461  # Tells the seeds of noise from those of shuffling, which have one number less.


def attacked(
  attack: str, seed: int, trained: local_training.Trained, data: Any, t: tf.Tensor
) -> local_training.Trained:
  """Returns a client's result with what it sends if it is an attacker.

  Args:
    attack: The attack; of `INNER_PRODUCT` the server's part makes the update.
    seed: The seed of the run's clients.
    trained: The client's result, or that of a group of clients.
    data: The client's data, or the list of the data of a group.
    t: The round.
  """
  strength = of_data(data, entries.ATTACK)
  is_attacker = strength > 0
  if attack == 'sign_flip':
    update = _scaled(tf.where(is_attacker, -strength, 1.0), trained.update)
  elif attack == 'scaling':
    update = _scaled(tf.where(is_attacker, strength, 1.0), trained.update)
  elif attack == 'free_rider':
    update = _scaled(tf.where(is_attacker, 0.0, 1.0), trained.update)
  elif attack == 'noise':
    update = _noised(seed, trained, data, t, strength)
  else:
    return trained
  size = len(data) if isinstance(data, list) else None
  return trained._replace(update=update, squared_norm=corrections.squared_norm(update, size))


def marked(weight: tf.Tensor, data: Any) -> tf.Tensor:
  """Returns the weight of a client, or of a group, with the mark of attackers."""
  return tf.where(of_data(data, entries.ATTACK) > 0, MARK * weight, weight)


def unmarked(weight: float) -> float:
  """Returns the weight that `marked` has marked or not."""
  return weight / MARK if weight < 0 else weight


def of_data(data: Any, name: str) -> tf.Tensor:
  """Returns an entry of a client's data, or [G] of the list of the data of a group."""
  if isinstance(data, list):
    return tf.stack([element[name] for element in data])
  return data.get_single_element()[name]


def _scaled(factor: tf.Tensor, update: Any) -> Any:
  return corrections.combine(lambda leaf: corrections.scale(factor, leaf), update)


def _noised(
  seed: int, trained: local_training.Trained, data: Any, t: tf.Tensor, strength: tf.Tensor
) -> Any:
  """Returns the update plus noise, of s times its norm in expectation."""
  clients = of_data(data, 'client')
  is_group = isinstance(data, list)
  num_coordinates = sum(
    (leaf.shape[1:] if is_group else leaf.shape).num_elements() for leaf in trained.update
  )
  # For a noise of this deviation in each coordinate, whose number is n, the norm is sqrt(n) times
  # it.
  deviation = strength * tf.sqrt(trained.squared_norm / num_coordinates)
  base = seeds.fold(seeds.base(seed), t)
  leaves = []
  for i, leaf in enumerate(trained.update):

    def normal(client: tf.Tensor, i: int = i, leaf: tf.Tensor = leaf) -> tf.Tensor:
      shape = leaf.shape[1:] if is_group else leaf.shape
      own_seed = seeds.fold(base, client, _NOISE, i)
      return tf.random.stateless_normal(shape, own_seed, dtype=leaf.dtype)

    if is_group:
      noise = tf.stack([normal(client) for client in tf.unstack(clients, len(data))])
    else:
      noise = normal(clients)
    leaves.append(leaf + corrections.scale(deviation, noise))
  return tuple(leaves)
