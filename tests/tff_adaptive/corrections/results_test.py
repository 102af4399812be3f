"""What a correction gets wrong is said in its own words; what is right is passed on as it is."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections
from tff_adaptive.corrections import results

G = inputs.weights(6)
LIKE = 'Own.gradient must return'


@dataclasses.dataclass(frozen=True)
class Own(corrections.Correction):
  """Returns what it is given."""

  found: object = ()

  def gradient(self, client, theta, g):
    return self.found

  def client_update(self, client, g_i, steps):
    return self.found

  def server_update(self, server_state, server):
    return self.found


@pytest.mark.parametrize('group', [None, 3])
def test_what_is_right_passes_as_it_is(group):
  g, client = inputs.weights(6, group), inputs.client_round(group)
  assert results.gradient(Own(g), client, g, g) is g
  for found, upload in (({'h': g}, ()), ({'h': list(g)}, G)):  # An upload may be anything.
    pair = results.client_update(Own((found, upload)), client, g, tf.constant(1.0), group)
    assert pair == (collections.OrderedDict(h=g), upload)  # In the former state's containers.
  server = inputs.server_round()
  pair = ({'h': G}, server.g_bar)
  assert results.server_update(Own(pair), {'h': G}, server) == pair


def test_a_correction_is_given_what_its_methods_name():
  calls = []

  class Noting(corrections.Correction):
    def gradient(self, client, theta, g):
      calls.append((client, theta, g))
      return g

    def client_update(self, client, g_i, steps):
      calls.append((client, g_i, steps))
      return client.client_state, ()

    def server_update(self, server_state, server):
      calls.append((server_state, server))
      return server_state, server.g_bar

  client, server, steps = inputs.client_round(), inputs.server_round(), tf.constant(3.0)
  theta, state = inputs.weights(7), {'h': G}
  results.gradient(Noting(), client, theta, G)
  results.client_update(Noting(), client, G, steps)
  results.server_update(Noting(), state, server)
  expected = [(client, theta, G), (client, G, steps), (state, server)]
  assert all(a is b for found, given in zip(calls, expected) for a, b in zip(found, given))
  assert len(calls) == 3


@pytest.mark.parametrize(
  'found, words',
  [
    (None, f'{LIKE} a tuple of 2 tensors like the weights, found a NoneType:'),
    (G[0], f'{LIKE} a tuple of 2 tensors like the weights, found a EagerTensor:'),
    (G[:1], f'{LIKE} a tuple of 2 tensors like the weights, found a tuple of 1:'),
    ((G[0], 3.0), f'{LIKE} tensors like the weights: weight 1 is float32 (2,), found float None'),
    ((G[1], G[1]), f'{LIKE} tensors like the weights: weight 0 is float32 (3, 2), found float32'),
    ((G[0], tf.cast(G[1], tf.float64)), 'weight 1 is float32 (2,), found float64 (2,)'),
  ],
)
def test_weights_of_another_form_are_refused(found, words):
  with pytest.raises(TypeError) as error:
    results.gradient(Own(found), inputs.client_round(), G, G)
  assert words in str(error.value)
  with pytest.raises(TypeError, match=r'Own\.server_update must return'):
    results.server_update(Own(({'h': G}, found)), {'h': G}, inputs.server_round())


@pytest.mark.parametrize(
  'found, words',
  [
    ({'h': G}, 'Own.client_update must return the pair (client_state, upload), found a dict'),
    (({'h': G}, (), ()), 'must return the pair (client_state, upload), found a tuple'),
    (({'k': G}, ()), 'of the structure that Own.client_state gives, {h: (tensor, tensor)}, found'),
    ((None, ()), 'found NoneType'),
    (({'h': G[:1]}, ()), 'found {h: (tensor)}'),
  ],
)
def test_states_of_another_structure_are_refused(found, words):
  client = inputs.client_round(client_state={'h': G})
  with pytest.raises(TypeError) as error:
    results.client_update(Own(found), client, G, tf.constant(1.0))
  assert words in str(error.value)


@pytest.mark.parametrize(
  'found, words',
  [
    (tf.constant(3.0), 'like that of Own.client_state: int32 () became float32 ().'),
    (tf.constant([3]), 'int32 () became int32 (1,).'),
  ],
)
def test_states_of_another_dtype_or_shape_are_refused(found, words):
  client = inputs.client_round(client_state={'n': tf.constant(2)})
  with pytest.raises(TypeError) as error:
    results.client_update(Own(({'n': found}, ())), client, G, tf.constant(1.0))
  assert words in str(error.value)


def test_a_number_of_python_takes_the_dtype_and_in_a_group_one_is_for_all():
  for group, n in ((None, tf.constant(2)), (3, tf.constant([1, 2, 3]))):
    client = inputs.client_round(group, client_state={'n': n})
    for found in (7, np.int64(7), tf.constant(7)):
      state, _ = results.client_update(Own(({'n': found}, ())), client, G, tf.constant(1.0), group)
      assert (state['n'].dtype, int(state['n'])) == (tf.int32, 7)


def test_so_are_those_of_the_server():
  for found, words in (
    (({'k': G}, G), 'server_update must return a server_state of the structure'),
    (G[0], 'Own.server_update must return the pair (server_state, direction)'),
  ):
    with pytest.raises(TypeError) as error:
      results.server_update(Own(found), {'h': G}, inputs.server_round())
    assert words in str(error.value)
