"""An LSTM layer for many small batches on a CPU.

The equations are Keras's, with gates in the order input i, forget f, cell g, output o:

    z_t = x_t W + h_{t-1} R + b
    c_t = sigmoid(f_t) c_{t-1} + sigmoid(i_t) tanh(g_t)
    h_t = sigmoid(o_t) tanh(c_t)

The layer is unrolled over time and has its own gradient. A backward step needs only products with
factors that are computed for all steps at once, and the gradient of R is one matrix product over
all steps. All tensors may have a leading axis of clients.

In small batches most of the time of a step's product goes into reading R from memory, so R's
layout matters. The forward pass has one matrix for each gate, the backward pass transposes R once.
`tff_adaptive.kernels.lstm` is the same recurrence as one operation.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_adaptive.kernels import lstm as compiled_lstm


def lstm(
  x: tf.Tensor, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor, is_compiled: bool = False
) -> tf.Tensor:
  """Returns the outputs h_t, [T, B, H], of an LSTM of H units over B sequences of T steps.

  The first state is zero. All tensors may have a leading client axis, and T is static. The compiled
  recurrence needs float32 and a CPU.

  Args:
    x: float [T, B, inputs].
    kernel: W, [inputs, 4 H].
    recurrent: R, [H, 4 H].
    bias: b, [4 H].
    is_compiled: Whether `kernels.lstm`, a compiled operation, runs the recurrence.
  """
  steps = x.shape[-3]
  units = recurrent.shape[-2]
  # The inputs' share of z for all time steps in one product.
  z = tf.matmul(_merge(x), kernel) + bias[..., tf.newaxis, :]
  run = compiled_lstm.recurrence if is_compiled else _recurrence
  h = run(z, recurrent, steps)
  shape = tf.concat([tf.shape(x)[:-1], [units]], 0)
  return tf.ensure_shape(tf.reshape(h, shape), [*x.shape[:-1], units])


def _merge(x: tf.Tensor) -> tf.Tensor:
  """Reshapes [..., T, B, n] to [..., T B, n]."""
  shape = tf.shape(x)
  return tf.reshape(x, tf.concat([shape[:-3], [shape[-3] * shape[-2], x.shape[-1]]], 0))


def _recurrence(z: tf.Tensor, r: tf.Tensor, steps: int) -> tf.Tensor:
  """Returns h_1 ... h_T, [..., T B, H]; the argument z, [..., T B, 4 H], lacks the terms h R."""
  units = r.shape[-2]
  leading = r.shape.rank - 2

  def by_time_and_gate() -> list[tf.Tensor]:
    """Returns z as T tensors [..., 4, B, H], one for each step."""
    shape = tf.concat([tf.shape(z)[:-2], [steps, tf.shape(z)[-2] // steps, 4, units]], 0)
    axes = list(range(leading))
    t, b, gate, h = range(leading, leading + 4)
    return tf.unstack(tf.transpose(tf.reshape(z, shape), [t, *axes, gate, b, h]))

  def by_gate() -> tf.Tensor:
    """Returns R as [..., 4, H, H], one matrix for each gate."""
    split = tf.reshape(r, tf.concat([tf.shape(r)[:-1], [4, units]], 0))
    axes = list(range(leading))
    return tf.transpose(split, [*axes, leading + 1, leading, leading + 2])

  @tf.custom_gradient
  def run(z: tf.Tensor, r: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    r_gates = by_gate()
    z_steps = by_time_and_gate()
    zero = tf.zeros_like(z_steps[0][..., 0, :, :])
    h = c = zero
    hs = [zero]
    cs = [zero]
    gates = []
    tanhs = []
    for z_t in z_steps:
      a = z_t + tf.matmul(h[..., tf.newaxis, :, :], r_gates)
      z_i, z_f, z_g, z_o = tf.unstack(a, axis=-3)
      i = tf.sigmoid(z_i)
      f = tf.sigmoid(z_f)
      g = tf.tanh(z_g)
      o = tf.sigmoid(z_o)
      c = f * c + i * g
      tanh_c = tf.tanh(c)
      h = o * tanh_c
      hs.append(h)
      cs.append(c)
      tanhs.append(tanh_c)
      gates.append((i, f, g, o))

    def gradient(d_outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      i, f, g, o = (tf.concat(gate, -2) for gate in zip(*gates))
      tanh_c = tf.concat(tanhs, -2)
      c_before = tf.concat(cs[:-1], -2)
      # dz_t = (dc, dc, dc, dh) * local_t, where dc takes dh * to_cell_t from h_t.
      to_cell = tf.split(o * (1 - tanh_c * tanh_c), steps, -2)
      slopes = [g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g), tanh_c * o * (1 - o)]
      local = tf.split(tf.concat(slopes, -1), steps, -2)
      d_outputs = tf.split(d_outputs, steps, -2)
      r_transposed = tf.linalg.matrix_transpose(r)
      dh = dc = zero
      dz = [None] * steps
      for t in reversed(range(steps)):
        dh = dh + d_outputs[t]
        dc = dc + dh * to_cell[t]
        dz[t] = tf.concat([dc, dc, dc, dh], -1) * local[t]
        dh = tf.matmul(dz[t], r_transposed)
        dc = dc * gates[t][1]
      dz = tf.concat(dz, -2)
      # One product over all steps: rows are (time, example) pairs.
      return dz, tf.matmul(tf.concat(hs[:-1], -2), dz, transpose_a=True)

    return tf.concat(hs[1:], -2), gradient

  return run(z, r)
