"""PowerSGD: exact for matrices of low rank, NumPy's power iteration otherwise, its size."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import corrections
from tff_adaptive.corrections import messages

SEED = tf.constant([1, 2])
SHAPES = ((9, 8), (8,), (3, 4, 10))


def update(seed, rank=None):
  """Tensors like a model's; with a rank, of matrices of this rank."""
  rng = np.random.default_rng(seed)
  tensors = []
  for shape in SHAPES:
    if rank is None or len(shape) == 1:
      tensors.append(rng.normal(size=shape))
    else:
      rows = int(np.prod(shape[:-1]))
      product = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, shape[-1]))
      tensors.append(product.reshape(shape))
  return tuple(tf.constant(m, tf.float32) for m in tensors)


def rounds_of(correction, updates):
  """What the server decodes of one client's updates, and the client's last state."""
  state = correction.client_state(updates[0])
  received = []
  for message in updates:
    decoded, state, _ = messages.send(correction, message, state, (), SEED)
    received.append(decoded)
  return received, state


def test_a_message_of_low_rank_arrives_as_it_is():
  received, _ = rounds_of(corrections.LowRank(rank=2), [update(t, rank=2) for t in range(3)])
  for t in range(3):
    for actual, wanted in zip(received[t], update(t, rank=2), strict=True):
      np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


def test_the_factors_are_kept_and_are_numpys_power_iteration():
  """Of the same message again and again it comes to the best matrix of that rank."""
  part = corrections.LowRank(rank=2)
  message = update(0)
  matrix = message[0].numpy().astype(np.float64)
  q = part.client_state(message)['factors'][0][0].numpy().astype(np.float64)
  received, state = rounds_of(part, [message] * 40)
  for t in range(40):
    p, _ = np.linalg.qr(matrix @ q)
    q = matrix.T @ p
    np.testing.assert_allclose(received[t][0], p @ q.T, rtol=1e-3, atol=2e-4)
    np.testing.assert_array_equal(received[t][1], message[1])  # A vector is sent as it is.
    error = np.linalg.norm(received[t][0] - matrix)
    assert error <= np.linalg.norm(matrix)
  values = np.linalg.svd(matrix, compute_uv=False)
  assert error == pytest.approx(np.sqrt((values[2:] ** 2).sum()), rel=1e-2)
  assert state['factors'][0][0].shape == (8, 2)


def test_after_a_message_of_zeros_matrices_whose_first_rows_are_zero_arrive():
  """Kernels of a first layer have such rows where a pixel is always dark."""
  message = update(0, rank=2)
  nothing = tuple(tf.zeros_like(leaf) for leaf in message)
  matrix = message[0] * tf.cast(tf.range(9) >= 3, tf.float32)[:, tf.newaxis]
  dark = (matrix, *message[1:])
  received, _ = rounds_of(corrections.LowRank(rank=2), [nothing, dark])
  np.testing.assert_array_equal(received[0][0], nothing[0])
  np.testing.assert_allclose(received[1][0], matrix, rtol=1e-4, atol=1e-4)


def test_rows_that_are_orthogonal_to_those_of_before_arrive_one_message_later():
  """Of such a matrix M Q is 0, so that the basis is any."""
  messages_of_columns = []
  for column in (0, 1, 1):
    leaves = [np.zeros(shape, np.float32) for shape in SHAPES]
    leaves[0][:, column] = np.arange(1.0, 10.0)
    messages_of_columns.append(tuple(map(tf.constant, leaves)))
  received, _ = rounds_of(corrections.LowRank(rank=1), messages_of_columns)
  norm = np.linalg.norm(messages_of_columns[0][0])
  errors = [np.linalg.norm(r[0] - m[0]) for r, m in zip(received, messages_of_columns)]
  assert norm / 2 < errors[1] <= norm
  np.testing.assert_allclose([errors[0], errors[2]], 0.0, atol=1e-4)


def test_with_feedback_what_is_left_out_comes_later():
  chain = corrections.chain(corrections.LowRank(rank=1, feedback='ef14'))
  updates = [update(t) for t in range(6)]
  received, state = rounds_of(chain, updates)
  for i in range(len(SHAPES)):
    whole = sum(u[i].numpy().astype(np.float64) for u in updates)
    sent = sum(r[i].numpy().astype(np.float64) for r in received)
    np.testing.assert_allclose(sent + state[0]['memory'][0][i], whole, rtol=1e-4, atol=1e-4)


def test_the_size_is_that_of_the_factors():
  size = messages.size(corrections.LowRank(rank=2), update(0), ())
  assert size.update == 4 * (2 * (9 + 8) + 8 + 2 * (12 + 10))
  # Factors of rank 5 of a matrix [9, 8] have 85 numbers; the matrix has 72.
  size = messages.size(corrections.LowRank(rank=5), update(0), ())
  assert size.update == 4 * (72 + 8 + 5 * (12 + 10))


def test_it_stands_alone():
  with pytest.raises(ValueError, match=r'^sign cannot follow low_rank, which sends codes'):
    corrections.chain(corrections.LowRank(), corrections.Sign())
  with pytest.raises(ValueError, match=r'^low_rank cannot follow top_k: it needs matrices'):
    corrections.chain(corrections.TopK(), corrections.LowRank())
