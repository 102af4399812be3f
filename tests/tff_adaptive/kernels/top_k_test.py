"""The compiled selection: the numbers of the uncompiled one, to the bit."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import compiler
from tff_adaptive import corrections
from tff_adaptive.compression import selection
from tff_adaptive.corrections import messages
from tff_adaptive.kernels import top_k

pytestmark = compiler.NEEDED


def values_of(kind, size):
  rng = np.random.default_rng(size)
  normal = rng.normal(size=size)
  is_sample = np.arange(size) % 16 == 0
  return {
    'normal': normal,
    'few values': rng.integers(-3, 4, size=size),
    'equal': np.full(size, -2.5),
    'zeros': np.where(rng.random(size) < 0.9, 0, normal),
    'tiny': normal * 2.0**-140,
    'sample below': np.where(is_sample, 1e-3 * normal, normal),
    'sample above': np.where(is_sample & (np.arange(size) < size // 9), 10 + normal, normal),
    'not finite': np.where(np.arange(size) % 97 == 0, np.nan, normal),
  }[kind].astype(np.float32)


KINDS = (
  'normal',
  'few values',
  'equal',
  'zeros',
  'tiny',
  'sample below',
  'sample above',
  'not finite',
)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('size', [97, 2**18 + 3])
def test_the_numbers_are_those_of_the_uncompiled_selection(kind, size):
  values = values_of(kind, size)
  parts = [tf.constant(part) for part in np.split(values, [size // 3, size // 3 + 1])]
  for k in (1, size // 20, size // 2, size):
    decoded = top_k.keep_largest(parts, k)
    wanted = selection.keep_largest(parts, k)
    for one, other in zip(decoded, wanted, strict=True):
      np.testing.assert_array_equal(one.numpy().view(np.int32), other.numpy().view(np.int32))


@pytest.mark.exhaustive
def test_a_compiled_part_sends_the_same_of_matrices_too():
  rng = np.random.default_rng(3)
  message = tuple(tf.constant(rng.normal(size=s), tf.float32) for s in ((30, 4), (7,)))
  for of in ('model', 'tensor'):
    plain, compiled = (corrections.TopK(share=0.2, of=of, compiled=c) for c in (False, True))
    send = tf.function(lambda part: messages.send(part, message, (), (), tf.constant([1, 2])))
    tf.nest.map_structure(np.testing.assert_array_equal, send(plain), send(compiled))
