"""The recurrence of an LSTM and its gradient, as one operation each, on a CPU.

The equations are Keras's, from zero state, with gates in the order input i, forget f, cell g,
output o:

    z_t = (the inputs' share) + h_{t-1} R
    c_t = sigmoid(f_t) c_{t-1} + sigmoid(i_t) tanh(g_t)
    h_t = sigmoid(o_t) tanh(c_t)
"""

from collections.abc import Callable

import tensorflow as tf

from tff_adaptive.kernels import library


def recurrence(z: tf.Tensor, recurrent: tf.Tensor, steps: int) -> tf.Tensor:
  """Returns h_1 ... h_T, float32 [..., T B, H], which can be differentiated once.

  Args:
    z: float32 [..., T B, 4 H], the inputs' part of the gates for all steps, time first.
    recurrent: R, float32 [..., H, 4 H]; the leading axes are those of z.
    steps: T.

  Raises:
    KernelError: If the operations are not available; see `library.load`.
    TypeError: If the arguments are not float32.
  """
  if z.dtype != tf.float32:
    raise TypeError(f'the compiled LSTM computes in float32, not in {z.dtype.name}')
  operations = library.load()
  rows, units = z.shape[:-1], recurrent.shape[-2]

  @tf.custom_gradient
  def run(z: tf.Tensor, r: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    h, gates, c = operations.tff_adaptive_lstm(z=z, r=r, steps=steps)
    h = tf.ensure_shape(h, [*rows, units])

    def gradient(dh: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      dz = operations.tff_adaptive_lstm_grad(dh=dh, r=r, gates=gates, c=c, steps=steps)
      dz = tf.ensure_shape(dz, [*rows, 4 * units])
      batch = tf.shape(h)[-2] // steps
      before = tf.concat([tf.zeros_like(h[..., :batch, :]), h[..., :-batch, :]], -2)
      return dz, tf.matmul(before, dz, transpose_a=True)

    return h, gradient

  return run(z, recurrent)
