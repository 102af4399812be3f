"""The recurrence of an LSTM and its gradient, as one operation each, on a CPU.

The equations are those of Keras. z_t has the parts i_t (input gate), f_t (forget gate), g_t (cell)
and o_t (output gate) in this order, and h_0 and c_0 are zero:

    z_t = (the inputs' part) + h_{t-1} R
    c_t = sigmoid(f_t) c_{t-1} + sigmoid(i_t) tanh(g_t)
    h_t = sigmoid(o_t) tanh(c_t)
"""

from collections.abc import Callable

import tensorflow as tf

from tff_adaptive.kernels import library


def recurrence(z: tf.Tensor, recurrent: tf.Tensor, steps: int) -> tf.Tensor:
  """Returns the outputs h_1 ... h_T, float32 [..., T B, H], which can be differentiated once.

  Args:
    z: float32 [..., T B, 4 H], the inputs' part of z_t for T steps of B sequences, time first.
    recurrent: R, float32 [..., H, 4 H], with H units; the leading axes are those of z.
    steps: T, the number of time steps.

  Raises:
    KernelError: If the operations are not available; see `library.load`.
    TypeError: If the arguments are not float32.
  """
  if z.dtype != tf.float32:
    raise TypeError(f'the compiled LSTM computes in float32, not in {z.dtype.name}')
  operations = library.load()
  rows = z.shape[:-1]
  units = recurrent.shape[-2]

  @tf.custom_gradient
  def run(z: tf.Tensor, r: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    h, gates, c = operations.tff_adaptive_lstm(z=z, r=r, steps=steps)
    h = tf.ensure_shape(h, [*rows, units])

    def gradient(dh: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      dz = operations.tff_adaptive_lstm_grad(dh=dh, r=r, gates=gates, c=c, steps=steps)
      dz = tf.ensure_shape(dz, [*rows, 4 * units])
      batch = tf.shape(h)[-2] // steps
      # h_{t-1} for each t: the outputs shifted by one step, with h_0 = 0 first.
      before = tf.concat([tf.zeros_like(h[..., :batch, :]), h[..., :-batch, :]], -2)
      return dz, tf.matmul(before, dz, transpose_a=True)

    return h, gradient

  return run(z, recurrent)
