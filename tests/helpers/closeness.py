"""Compares tensors that two programs have made by the same formula, with sums in another order.

A rounding of float32 changes a number by at most `UNIT` = 2^-24 of the number. The order of a sum
decides which partial sums are rounded. It depends on whether clients train alone or as one batched
operation, on threads and devices, and on the processor: how many elements a register holds, and
whether TensorFlow multiplies by oneDNN, which it does by default only on processors with
instructions for neural networks (such as AVX512_VNNI). Two orders therefore differ in proportion to
the *terms*: to the norm of the tensor, not to its smallest elements. An element of 3e-5 in a tensor
of norm 0.07 may differ in its second digit, and nothing is wrong.

If a tensor is a difference of larger numbers, their roundings stay. SCAFFOLD's
c_i = (theta - theta_i) / (K lr) has those of K steps of theta, divided by K lr: about
UNIT ||theta|| / lr. Give 16 times this as `atol`.
"""

import numpy as np

UNIT = 2.0**-24  # The largest relative error of a rounding to float32.
# 256 roundings in a row, all in one direction: more than a round of the small problems has.
RTOL = 2.0**8 * UNIT
# Sixteen roundings of a difference of numbers whose norm is 1.
ATOL = 2.0**4 * UNIT


def assert_close(actual, expected, rtol=RTOL, atol=ATOL, where=''):
  """Asserts ||found - expected|| <= rtol ||expected|| + atol, over all elements of a tensor.

  Elements that are not finite must be the same. With 0 and 0 all elements must be equal.
  """
  actual = np.asarray(actual)
  expected = np.asarray(expected)
  assert actual.shape == expected.shape, f'{where}: shapes {actual.shape} and {expected.shape}'
  is_finite = np.isfinite(expected)
  np.testing.assert_array_equal(np.isfinite(actual), is_finite, err_msg=where)
  np.testing.assert_array_equal(actual[~is_finite], expected[~is_finite], err_msg=where)
  wanted = expected[is_finite].astype(np.float64)
  distance = np.linalg.norm(actual[is_finite].astype(np.float64) - wanted)
  norm = np.linalg.norm(wanted)
  allowed = rtol * norm + atol
  assert distance <= allowed, (
    f'{where}: ||found - expected|| is {distance:.3g}; at most {allowed:.3g} is allowed, where'
    f' ||expected|| is {norm:.3g}.\nfound {actual!r}\nexpected {expected!r}'
  )
