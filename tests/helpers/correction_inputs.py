"""What a client and the server know in a round, at random, for tests of the formulas alone."""

import collections

import numpy as np
import tensorflow as tf

from tff_adaptive.corrections import base

SHAPES = ((3, 2), (2,))


def weights(seed, group=None):
  """Random weights, a tuple of tensors; with a leading axis for a group of clients."""
  rng = np.random.default_rng(seed)
  leading = () if group is None else (group,)
  return tuple(
    tf.constant(rng.normal(size=(*leading, *shape)).astype(np.float32)) for shape in SHAPES
  )


def client_round(**given):
  """A `ClientRound` whose weights have seeds of their own; `given` replaces some."""
  values = dict(
    theta_0=weights(1),
    client_state=collections.OrderedDict(h=weights(2)),
    broadcast=(),
    t=tf.constant(5.0),
    eta_l=tf.constant(0.125),
    num_examples=tf.constant(8.0),
    full_gradient=lambda: weights(3),
  )
  return base.ClientRound(**{**values, **given})


def server_round(**given):
  """A `ServerRound` of 3 clients."""
  values = dict(g_bar=weights(4), uploads=weights(5), cohort=tf.constant(3.0), t=tf.constant(5.0))
  values['theta'] = weights(6)
  return base.ServerRound(**{**values, **given})
