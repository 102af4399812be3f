"""Messages with error feedback: oracles in NumPy, identities, second messages, sizes."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import corrections
from tff_adaptive.corrections import messages

SEED = tf.constant([1, 2])
SHAPES = ((3, 4), (5,))


def update(seed):
  rng = np.random.default_rng(seed)
  return tuple(tf.constant(rng.normal(size=shape), tf.float32) for shape in SHAPES)


def pack(tensors):
  return np.concatenate([np.asarray(t, np.float64).ravel() for t in tensors])


def top_k(vector, k):
  """The k largest numbers, and zeros."""
  selected = np.zeros_like(vector)
  largest = np.argsort(-np.abs(vector))[:k]
  selected[largest] = vector[largest]
  return selected


def rounds_of(correction, num_rounds):
  """What the server decodes of one client's updates, and the client's memory after them."""
  state = correction.client_state(update(0))
  received = []
  for t in range(num_rounds):
    decoded, state, _ = messages.send(correction, update(t), state, (), SEED)
    received.append(pack(decoded))
  return received, pack(state[0]['memory'][0])


@pytest.mark.parametrize('decay', [1.0, 0.7])
def test_ef14_is_its_formula(decay):
  chain = corrections.chain(corrections.TopK(share=0.2, feedback='ef14', decay=decay))
  received, memory = rounds_of(chain, 5)
  e = np.zeros(17)
  for t in range(5):
    asked = pack(update(t)) + decay * e
    sent = top_k(asked, 3)
    e = asked - sent
    np.testing.assert_allclose(received[t], sent, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(memory, e, rtol=1e-5, atol=1e-6)


def test_ef21_is_its_formula():
  chain = corrections.chain(corrections.TopK(share=0.2, feedback='ef21'))
  received, memory = rounds_of(chain, 5)
  h = np.zeros(17)
  for t in range(5):
    h = h + top_k(pack(update(t)) - h, 3)
    np.testing.assert_allclose(received[t], h, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(memory, h, rtol=1e-5, atol=1e-6)


def test_feedback_of_what_loses_nothing_keeps_nothing():
  everything = corrections.TopK(share=1.0, feedback='ef14')
  received, memory = rounds_of(corrections.chain(everything), 3)
  for t in range(3):
    np.testing.assert_array_equal(received[t], pack(update(t)))
  np.testing.assert_array_equal(memory, np.zeros(17))
  received, memory = rounds_of(corrections.chain(corrections.TopK(share=1.0, feedback='ef21')), 3)
  np.testing.assert_allclose(memory, pack(update(2)), atol=1e-6)  # Of the last update.


def test_feedback_is_around_all_compressors_of_a_chain():
  """What top-k leaves out and what the rounding changes is sent later: the sums agree."""
  chain = corrections.chain(
    corrections.TopK(share=0.3, feedback='ef14'), corrections.Quantize(bits=2, random=False)
  )
  received, memory = rounds_of(chain, 8)
  whole = sum(pack(update(t)) for t in range(8))
  np.testing.assert_allclose(sum(received) + memory, whole, rtol=1e-5, atol=1e-5)
  assert all(np.count_nonzero(r) <= 5 for r in received)


@dataclasses.dataclass(frozen=True)
class Second(corrections.Correction):
  """Sends a second message: a number, integers, and tensors like the update."""

  name = 'second'

  def client_state(self, weights):
    return collections.OrderedDict(rounds=tf.zeros([]))

  def client_update(self, client, g_i, steps):
    tensors = tuple(2 * g for g in g_i)
    return client.client_state, {'count': steps, 'more': tensors, 'ids': tf.range(3)}


UPLOAD = {'count': tf.constant(5.0), 'ids': tf.range(3), 'more': update(9)}


@pytest.mark.parametrize('is_first', [True, False])
def test_second_messages_are_compressed_with_a_memory_of_their_own(is_first):
  top = corrections.TopK(share=0.2, feedback='ef14')
  chain = corrections.chain(*((Second(), top) if is_first else (top, Second())))
  state = chain.client_state(update(0))
  second = 0 if is_first else 2
  feedback = 1 if is_first else 0
  upload = tuple(UPLOAD if i == second else () for i in range(3))
  decoded, state, uploaded = messages.send(chain, update(3), state, upload, SEED)
  np.testing.assert_allclose(pack(decoded), top_k(pack(update(3)), 3), rtol=1e-6)
  second_message = uploaded[second]
  assert float(second_message['count']) == 5
  np.testing.assert_array_equal(second_message['ids'], range(3))
  np.testing.assert_allclose(pack(second_message['more']), top_k(pack(update(9)), 3), rtol=1e-6)
  whole = pack(UPLOAD['more'])
  memory = pack(state[feedback]['memory'][1])
  np.testing.assert_allclose(memory, whole - top_k(whole, 3), rtol=1e-6)
  sizes = messages.size(chain, update(3), upload)
  of_message = -(-(3 * 5 + 3 * 32) // 8)  # Three positions of five bits, and three numbers.
  assert sizes == (of_message, of_message + 4 + 12, ())


def test_a_message_that_is_not_finite_is_not_compressed():
  """A compressor could turn NaN into a number, and the client would not count as diverged."""
  bad = (tf.fill([3, 4], np.nan), tf.ones([5]))
  for part in (corrections.Ternary(), corrections.RandK(share=0.01), corrections.Sign()):
    sent, _, _ = messages.send(part, bad, (), (), SEED)
    assert np.isnan(sent[0]).all()


@dataclasses.dataclass(frozen=True)
class Halved(corrections.Compressor):
  """A user's compressor."""

  name = 'halved'

  def compress(self, values, seed):
    return values / 2


@dataclasses.dataclass(frozen=True)
class Own(corrections.Correction):
  """A user's part that compresses in `update`."""

  name = 'own'

  def message_bits(self, size):
    return 3 * size


def test_the_size_of_a_users_parts():
  """The whole size counts for a compressor that does not say its own, and its name is known."""
  assert messages.size(Halved(), update(0), ()) == (17 * 4, 0, ('halved',))
  assert messages.size(Own(), update(0), ()) == (-(-3 * 17 // 8), 0, ())
  assert messages.size(corrections.Correction(), update(0), ()) == (17 * 4, 0, ())
  top = corrections.TopK(share=0.2)
  chain = corrections.chain(top, Halved())
  assert messages.size(chain, update(0), ()) == (-(-(15 + 3 * 32) // 8), 0, ('halved',))


@pytest.mark.exhaustive
def test_groups_have_the_bits_of_single_clients():
  chain = corrections.chain(
    Second(), corrections.RandK(share=0.3, feedback='ef14'), corrections.Qsgd(levels=3)
  )
  states = [chain.client_state(update(i)) for i in range(2)]
  upload = (UPLOAD, (), (), ())
  seeds = tf.constant([[1, 2], [1, 3]])
  singles = [messages.send(chain, update(i), states[i], upload, seeds[i]) for i in range(2)]
  group = tf.nest.map_structure(
    lambda *leaves: tf.stack(leaves),
    *[(update(i), states[i], upload) for i in range(2)],
  )
  sent = messages.send_each(chain, 2, *group, seeds)
  wanted = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *singles)
  tf.nest.map_structure(np.testing.assert_array_equal, sent, wanted)


@dataclasses.dataclass(frozen=True)
class Exact(Second):
  """Its second message is sent as it is."""

  name = 'exact'
  sends_exact = True


def test_what_a_part_sends_exactly_is_not_compressed():
  chain = corrections.chain(Exact(), corrections.Sign(feedback='ef14'))
  state = chain.client_state(update(0))
  assert len(state[1]['memory']) == 1
  upload = (UPLOAD, (), ())
  decoded, _, uploaded = messages.send(chain, update(3), state, upload, SEED)
  assert not np.array_equal(decoded[0], update(3)[0])
  tf.nest.map_structure(np.testing.assert_array_equal, uploaded[0], UPLOAD)
  of_upload = 4 + 12 + 17 * 4
  assert messages.size(chain, update(3), upload).uploads == of_upload


@pytest.mark.parametrize('feedback', ['none', 'ef14'])
def test_a_model_of_which_nothing_is_sent_has_an_empty_message(feedback):
  """FedProto's models stay at the clients."""
  for part in (corrections.Sign(feedback=feedback), corrections.TopK(feedback=feedback)):
    chain = corrections.chain(Exact(), part)
    state = chain.client_state(())
    decoded, _, _ = messages.send(chain, (), state, (UPLOAD, (), ())[: len(chain.parts)], SEED)
    assert decoded == ()
    assert messages.size(chain, (), ()).update == 0


@dataclasses.dataclass(frozen=True)
class Summed(Second):
  """Its server adds up updates and second messages, of which its clients keep the same sums."""

  name = 'summed'
  adds_up = ('update', 'upload')

  def client_state(self, weights):
    zeros = tuple(tf.zeros_like(w) for w in weights)
    return collections.OrderedDict(h=zeros, second=zeros)

  def after_loss(self, client_state, lost_update, lost_upload):
    assert float(lost_upload['count']) == 0
    np.testing.assert_array_equal(lost_upload['ids'], [0, 0, 0])
    return collections.OrderedDict(
      h=tuple(h - lost for h, lost in zip(client_state['h'], lost_update, strict=True)),
      second=tuple(h - lost for h, lost in zip(client_state['second'], lost_upload['more'])),
    )


@pytest.mark.parametrize('stays', [(), (True, False)])
def test_a_client_takes_back_what_is_lost_for_good(stays):
  """Of what is not sent nothing is lost. With a decay a share of the memory is."""
  part = Summed().with_groups(stays=stays)
  sent = update(3)[1:] if stays else update(3)
  whole = collections.OrderedDict(h=update(3), second=UPLOAD['more'])
  chain = corrections.chain(part, corrections.TopK(share=0.2))
  decoded, (state, _), (upload, _) = messages.send(chain, sent, (whole, ()), (UPLOAD, ()), SEED)
  if stays:
    np.testing.assert_array_equal(state['h'][0], update(3)[0])
  np.testing.assert_allclose(pack(state['h'][-len(decoded) :]), pack(decoded), atol=1e-6)
  np.testing.assert_allclose(pack(state['second']), pack(upload['more']), atol=1e-6)


def test_a_decay_loses_its_share_of_the_memory():
  chain = corrections.chain(Summed(), corrections.TopK(share=0.2, feedback='ef14', decay=0.7))
  memory = collections.OrderedDict(memory=(update(5), update(6)))
  whole = collections.OrderedDict(h=update(3), second=UPLOAD['more'])
  _, (state, _, _), _ = messages.send(chain, update(3), (whole, memory, ()), (UPLOAD, (), ()), SEED)
  lost = pack(update(3)) - pack(state['h'])
  np.testing.assert_allclose(lost, 0.3 * pack(update(5)), rtol=1e-5, atol=1e-6)
  lost = pack(UPLOAD['more']) - pack(state['second'])
  np.testing.assert_allclose(lost, 0.3 * pack(update(6)), rtol=1e-5, atol=1e-6)


def test_ef21_of_a_message_that_is_added_up_is_of_the_sum():
  """What the server has added up and the memory are the sum of all messages."""
  chain = corrections.chain(Summed(), corrections.TopK(share=0.2, feedback='ef21'))
  state = chain.client_state(update(0))
  added_up = 0.0
  for t in range(5):
    upload = ({**UPLOAD, 'more': update(10 + t)}, (), ())
    decoded, state, _ = messages.send(chain, update(t), state, upload, SEED)
    added_up = added_up + pack(decoded)
  whole = sum(pack(update(t)) for t in range(5))
  np.testing.assert_allclose(added_up + pack(state[1]['memory'][0]), whole, rtol=1e-5, atol=1e-5)


@dataclasses.dataclass(frozen=True)
class _Drawing(corrections.Correction):
  """Uploads what takes all that a client has to find."""

  def server_state(self, theta):
    return tuple(tf.zeros_like(w) for w in theta)

  def client_update(self, client, g, k):
    drawn = tf.random.stateless_uniform([], client.seed) + tf.cast(client.index, tf.float32)
    number = (
      drawn + client.full_loss() + tf.reduce_sum(client.label_counts(3)) + client.planned_steps
    )
    return (), tuple(number * w for w in g)


@pytest.mark.parametrize('feedback', ['ef14', 'ef21'])
@pytest.mark.parametrize(('part', 'num_messages'), [(_Drawing(), 2), (corrections.QFedAvg(), 1)])
def test_the_memories_are_found_whatever_a_client_uses_for_what_it_sends(
  part, num_messages, feedback
):
  """Q-FedAvg uses the client's loss, and sends a number, which is not compressed."""
  weights = (tf.zeros([4, 3]), tf.zeros([3]))
  state = corrections.chain(part, corrections.TopK(feedback=feedback)).client_state(weights)
  assert sum(leaf.shape.num_elements() for leaf in tf.nest.flatten(state)) == 15 * num_messages


def test_no_weights_are_no_bytes():
  """All weights may stay at the client."""
  compressors = messages.compression_of((corrections.TopK(), corrections.Quantize())).compressors
  assert messages.num_bytes_compressed(compressors, ()) == 0
