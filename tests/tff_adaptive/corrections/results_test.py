"""What a correction gets wrong is said in its own words; what is right is passed on as it is."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections
from tff_adaptive.corrections import probe, results

G = inputs.weights(6)


@dataclasses.dataclass(frozen=True)
class Own(corrections.Correction):
  """Returns what it is given."""

  result: object = ()

  def gradient(self, client, theta, g):
    return self.result

  def client_update(self, client, g_i, steps):
    return self.result

  def server_update(self, server_state, server):
    return self.result


def test_what_is_right_passes_as_it_is():
  g = inputs.weights(6)
  client = inputs.client_round()
  assert results.gradient(Own(g), client, g, g) == (g, ())
  carrying = client._replace(local_state=G[0])
  assert results.gradient(Own((g, G[0])), carrying, g, g) == (g, G[0])
  for state, upload in (({'h': g}, ()), ({'h': list(g)}, G)):  # An upload may be anything.
    passed = results.client_update(Own((state, upload)), client, g, tf.constant(1.0))
    assert passed == (collections.OrderedDict(h=g), upload)  # In the former state's containers.
  assert results.update(Own(), client, g, tf.constant(1.0)) == g
  server = inputs.server_round()
  assert results.restore(Own(), server) == server.g_bar
  pair = ({'h': G}, server.g_bar)
  assert results.server_update(Own(pair), {'h': G}, server) == (*pair, ())
  assert results.server_update(Own((*pair, 2)), {'h': G}, server)[2].dtype == tf.float32


WRONG = [
  (None, r'of the form \(tensor, tensor\), found NoneType\.'),
  (G[:1], r'of the form \(tensor, tensor\), found \(tensor\)\.'),
  ((G[0], 3.0), r'with a float32 \(2,\), found a float32 \(\)'),
  ((G[1], G[1]), r'with a float32 \(3, 2\), found a float32 \(2,\)'),
  ((G[0], tf.cast(G[1], tf.float64)), r'with a float32 \(2,\), found a float64'),
]


@pytest.mark.parametrize('wrong, words', WRONG)
def test_weights_and_states_of_another_form_are_refused(wrong, words):
  client = inputs.client_round(client_state=G)
  server = inputs.server_round()
  one = tf.constant(1.0)
  for what, call in (
    ('gradient', lambda: results.gradient(Own(wrong), client, G, G)),
    ('client_state', lambda: results.client_update(Own((wrong, ())), client, G, one)),
    ('server_state', lambda: results.server_update(Own((wrong, G)), G, server)),
    ('direction', lambda: results.server_update(Own((G, wrong)), G, server)),
  ):
    with pytest.raises(TypeError, match=rf'^Own\.\w+ must return a {what} .*{words}'):
      call()


def test_uploads_and_factors_that_are_no_numbers_are_refused():
  client = inputs.client_round()
  server = inputs.server_round()
  one = tf.constant(1.0)
  state = client.client_state
  for upload in (None, tf.constant('a'), tf.constant(True), {'a': (one, 'b')}):
    with pytest.raises(TypeError, match=r'Own\.client_update must return an upload of numbers'):
      results.client_update(Own((state, upload)), client, G, one)
  with tf.Graph().as_default():
    unknown = tf.compat.v1.placeholder(tf.float32, [None])
  with pytest.raises(TypeError, match=r'known shapes, found .* of shape \(None,\)'):
    results.client_update(Own((state, unknown)), client, G, one)
  for factor in (None, 'two', tf.ones([3]), tf.constant('a')):
    with pytest.raises(TypeError, match=r'Own\.server_update must return a factor that is a numb'):
      results.server_update(Own(({'h': G}, server.g_bar, factor)), {'h': G}, server)

  class Silent(corrections.Correction):
    def exchange(self, client):
      return None

  with pytest.raises(TypeError, match=r'Silent\.exchange must return what is sent of numbers'):
    probe.trace(Silent(), G)
  for result, words in (((1, 2, 3, 4), 'tuple of 4'), ({'h': G}, 'dict')):
    words = rf'state, \w+\), found a {words}; give \(\)'
    with pytest.raises(TypeError, match=rf'server_update must return the pair \(server_{words}'):
      results.server_update(Own(result), {}, server)
    with pytest.raises(TypeError, match=rf'client_update must return the pair \(client_{words}'):
      results.client_update(Own(result), client, G, one)


def test_a_number_of_python_takes_the_dtype():
  client = inputs.client_round(client_state={'n': tf.constant(2)})
  for number in (7, np.int64(7), tf.constant(7)):
    state, _ = results.client_update(Own(({'n': number}, ())), client, G, tf.constant(1.0))
    assert (state['n'].dtype, int(state['n'])) == (tf.int32, 7)
