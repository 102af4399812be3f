"""The bytes of compressed updates are those of TensorFlow's own encoder."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_model_optimization.python.core.internal import tensor_encoding as te

from tff_adaptive.aggregation import sizes


@pytest.mark.parametrize('bits', [1, 4, 5, 8, 16])
@pytest.mark.exhaustive
def test_a_large_tensor_has_the_bytes_of_its_encoding(bits):
  values = np.random.default_rng(0).normal(size=101).astype(np.float32)
  encoder = te.encoders.as_simple_encoder(
    te.encoders.uniform_quantization(bits), tf.TensorSpec([101], tf.float32)
  )
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    encoded, _ = encoder.encode(tf.constant(values), encoder.initial_state())
    tensors = session.run(tf.nest.flatten(encoded))
  of_values = [t for t in tensors if np.ndim(t)]
  sent = sum(np.asarray(t).nbytes for t in of_values)
  num_bytes = sizes.update_bytes('compression', {'bits': bits, 'threshold': 100}, [101])
  assert num_bytes == sent


def test_small_tensors_and_other_aggregators_send_whole_updates():
  options = {'bits': 8, 'threshold': 100}
  assert sizes.update_bytes('compression', options, [100, 3]) == 412
  large = 4 * -(-1000 * 8 // 28) + 8
  assert sizes.update_bytes('compression', options, [1000, 3]) == large + 12
  assert sizes.update_bytes('clipping', {'norm': 1.0}, [1000, 3]) == 4012
  assert sizes.update_bytes('mean', {}, [1000, 3], 8) == 8024
