"""Compressors as parts: the bits of an encoded message, contraction, and what is refused."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import encoding
from tff_adaptive import corrections, registry
from tff_adaptive.corrections import messages

SIZE = 203
SEED = tf.constant([3, 4])


def values(size=SIZE, power=1, seed=0):
  return (np.random.default_rng(seed).normal(size=size) ** power).astype(np.float32)


def compress(parts, vector, seed=SEED):
  """What the server decodes of a vector with the compressors of a chain, which has one tensor."""
  compressors = messages.compression_of(corrections.chain(*parts).parts).compressors
  return messages._compress(compressors, (tf.constant(vector),), seed)[0].numpy()


FLOATS = encoding.Floats()
# A chain of compressors, and the encoder of its messages of SIZE numbers.
ENCODERS = [
  ([corrections.TopK(share=0.05)], encoding.Selected(10, FLOATS)),
  ([corrections.TopK(share=0.6)], encoding.Selected(122, FLOATS)),
  ([corrections.TopK(share=1.0)], encoding.Selected(SIZE, FLOATS)),
  ([corrections.RandK(share=0.05)], encoding.Selected(10, FLOATS, True, SIZE / 10)),
  ([corrections.Sign()], encoding.Sign()),
  ([corrections.Qsgd(levels=1)], encoding.Qsgd(1)),
  ([corrections.Qsgd(levels=15)], encoding.Qsgd(15)),
  ([corrections.Quantize(bits=2)], encoding.Quantize(2)),
  ([corrections.Quantize(bits=8, random=False)], encoding.Quantize(8)),
  ([corrections.Ternary()], encoding.Ternary()),
  ([corrections.Float16()], encoding.Halves(False)),
  ([corrections.BFloat16()], encoding.Halves(True)),
  (
    [corrections.TopK(share=0.05), corrections.Quantize(bits=4, random=False)],
    encoding.Selected(10, encoding.Quantize(4)),
  ),
  ([corrections.TopK(share=0.2), corrections.Sign()], encoding.Selected(41, encoding.Sign())),
  (
    [corrections.RandK(share=0.1), corrections.BFloat16()],
    encoding.Selected(20, encoding.Halves(True), True, SIZE / 20),
  ),
]


def _names(parts):
  return '+'.join(part.name for part in parts)


@pytest.mark.parametrize(
  ('parts', 'encoder'), ENCODERS, ids=[_names(parts) for parts, _ in ENCODERS]
)
def test_a_message_has_the_bits_of_its_encoding_which_decodes_to_what_the_server_gets(
  parts, encoder
):
  vector = values()
  decoded = compress(parts, vector)
  message = encoder.encode(vector, decoded)
  assert len(message) == messages.vector_bits(parts, SIZE)
  reader = encoding.Reader(message)
  np.testing.assert_allclose(encoder.decode(reader, SIZE), decoded, rtol=2e-5, atol=2e-6)
  assert reader.position == len(message)


def squared_errors(parts, vector, num_draws):
  """||C(x) - x||^2 / ||x||^2 for some seeds."""
  compressors = messages.compression_of(corrections.chain(*parts).parts).compressors

  @tf.function(autograph=False)
  def decode(seed):
    return messages._compress(compressors, (tf.constant(vector),), seed)[0]

  errors = []
  for i in range(num_draws):
    error = decode(tf.constant([i, 7])).numpy() - vector
    errors.append(np.sum(np.float64(error) ** 2) / np.sum(np.float64(vector) ** 2))
  return errors


@pytest.mark.parametrize('feedback', ['ef14', 'ef21'])
@pytest.mark.sample(1)
def test_with_feedback_compressors_are_contractions_within_their_bounds(feedback):
  """The mean of ||C(x) - x||^2 is at most (1 - delta) ||x||^2; the delta is that of the guide."""
  k = 10 / SIZE
  for part, delta, num_draws in (
    (corrections.TopK(share=0.05, feedback=feedback), k, 1),
    (corrections.RandK(share=0.05, feedback=feedback), k, 200),
    (corrections.Sign(feedback=feedback), 1 / SIZE, 1),
    (corrections.Qsgd(levels=4, feedback=feedback), 1 / (1 + np.sqrt(SIZE) / 4), 50),
    (corrections.Ternary(feedback=feedback), SIZE**-0.5, 50),
    (corrections.Float16(feedback=feedback), 1 - 2.0**-20, 1),
    (corrections.BFloat16(feedback=feedback), 1 - 2.0**-16, 1),
  ):
    for power in (1, 5):
      errors = squared_errors([part], values(power=power), num_draws)
      margin = 3 * np.std(errors) / np.sqrt(num_draws)  # Of the mean of the draws.
      assert np.mean(errors) <= 1 - delta + margin, part


def test_rand_k_has_no_bias_over_all_choices_and_with_feedback_no_factor(monkeypatch):
  """All orders of five random keys are all choices of two of five numbers, equally often."""
  import itertools

  vector = values(5)
  decoded = []
  for order in itertools.permutations(range(5)):
    keys = tf.constant(order, tf.float32) / 5
    monkeypatch.setattr(tf.random, 'stateless_uniform', lambda *_, keys=keys, **__: keys)
    decoded.append(compress([corrections.RandK(share=0.4)], vector))
    assert np.count_nonzero(decoded[-1]) == 2
    selected = compress([corrections.RandK(share=0.4, feedback='ef14')], vector)
    np.testing.assert_allclose(selected * 2.5, decoded[-1], rtol=1e-6)
  np.testing.assert_allclose(np.mean(decoded, 0), vector, rtol=1e-5)
  assert len({tuple(np.flatnonzero(d)) for d in decoded}) == 10


def test_top_k_of_a_model_is_over_all_tensors_and_of_a_tensor_in_each():
  message = (tf.constant([[1.0, -9, 8, 7]]), tf.constant([6.0, 1, 2, -3]))
  for of, wanted in (
    ('model', ([[0, -9, 8, 7]], [6, 0, 0, 0])),
    ('tensor', ([[0, -9, 8, 0]], [6, 0, 0, -3])),
  ):
    compressed = messages._compress([corrections.TopK(share=0.5, of=of)], message, SEED)
    for one, other in zip(compressed, wanted, strict=True):
      np.testing.assert_array_equal(one, other)
  top = corrections.TopK(share=0.5, of='tensor')
  sizes = messages.size(top, message, ())
  assert sizes.update == -(-(4 + 64 + 4 + 64) // 8)  # A bit for each coordinate, and two numbers.


def test_draws_differ_by_seed_tensor_and_message_and_repeat():
  part = corrections.RandK(share=0.1, of='tensor')
  same = np.ones(300, np.float32)
  update = (tf.constant(same), tf.constant(same))

  def send(seed):
    sent, _, _ = messages.send(part, update, (), (), tf.constant(seed))
    return [leaf.numpy() for leaf in sent]

  one = send([1, 2])
  again = send([1, 2])
  other = send([1, 3])
  np.testing.assert_array_equal(one, again)
  assert (one[0] != one[1]).any()
  assert (one[0] != other[0]).any()


@pytest.mark.parametrize(
  ('parts', 'words'),
  [
    ([corrections.Sign(), corrections.TopK()], '^top_k cannot follow sign, which sends codes'),
    ([corrections.TopK(), corrections.RandK()], '^rand_k cannot follow top_k, which selects too'),
    (
      [corrections.TopK(), corrections.Sign(feedback='ef14')],
      '^feedback of sign is ef14, but top_k compresses before it: give it as top_k.feedback',
    ),
    (
      [corrections.TopK(feedback='ef21'), corrections.Quantize(bits=1)],
      '^bits is 1 with feedback=ef21, whose error may then grow: give 2 or more',
    ),
  ],
)
def test_compressors_that_cannot_follow_one_another_are_refused(parts, words):
  with pytest.raises(ValueError, match=words):
    corrections.chain(*parts)


def test_bad_values_are_refused():
  for make, words in (
    (lambda: corrections.TopK(share=0.0), r'share must be in \(0, 1\], found 0.0'),
    (lambda: corrections.TopK(of='layer'), 'of must be model or tensor'),
    (lambda: corrections.Sign(feedback='ef'), 'feedback must be none or ef14 or ef21'),
    (lambda: corrections.Sign(decay=0.9), 'decay is 0.9, but feedback is none'),
    (lambda: corrections.Sign(feedback='ef21', decay=0.9), 'but feedback is ef21'),
    (lambda: corrections.Quantize(bits=17), 'bits must be at most 16'),
    (lambda: corrections.Quantize(bits=1, feedback='ef14'), 'bits is 1 with feedback=ef14'),
    (lambda: corrections.Qsgd(levels=0), 'levels must be at least 1'),
  ):
    with pytest.raises(ValueError, match=words):
      make()


def test_compressors_are_parts_by_name_with_their_options():
  entry = registry.algorithm('scaffold+top_k+quantize')
  names = {h.name for h in entry.hyperparameters}
  assert {'share', 'top_k.feedback', 'quantize.feedback', 'quantize.decay', 'bits'} <= names
  given = {'top_k.share': 0.1, 'top_k.feedback': 'ef21'}
  clients = corrections.RegisteredClients(7, 8.0)
  chain = registry.entries.resolve(entry.correction).configure(entry.values(given), clients)
  assert [part.name for part in chain.parts] == ['scaffold', 'ef21', 'top_k', 'quantize']
  assert entry.client_weighting == 'uniform'
  assert registry.algorithm('fed_avg+top_k').client_weighting == 'examples'


@dataclasses.dataclass(frozen=True)
class _Shorter(corrections.Compressor):
  """Returns three numbers, whatever it gets."""

  def compress(self, values, seed):
    return values[:3]


@dataclasses.dataclass(frozen=True)
class _Doubles(corrections.Compressor):
  """Returns another dtype."""

  def compress(self, values, seed):
    return tf.cast(values, tf.float64)


@pytest.mark.parametrize('before', [[], [corrections.TopK(share=0.5)]], ids=['alone', 'selected'])
@pytest.mark.parametrize(
  ('part', 'returned'), [(_Shorter(), r'float32 \(3,\)'), (_Doubles(), r'float64 \(\d+,\)')]
)
def test_a_compressor_that_returns_another_shape_or_dtype_is_named(before, part, returned):
  message = rf'^compress of {type(part).__name__} returned {returned} for float32 \(\d+,\): return'
  with pytest.raises(ValueError, match=message):
    compress([*before, part], values())
