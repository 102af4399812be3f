"""The bits of compressed numbers, in encodings of fixed length. Imports no TensorFlow.

The lengths follow from sizes that both sides know, so a message needs no header. The tests encode
messages and compare their lengths with these formulas.
"""

FLOAT = 32  # Of a scale, such as a norm; float32.
SEED = 64  # Of a seed for TensorFlow's stateless draws: two int32.


def codes(size: int, num_levels: int) -> int:
  """Returns the bits of `size` codes from 0 to `num_levels` - 1, each of the same length."""
  return size * (num_levels - 1).bit_length()


def indices(size: int, num_kept: int) -> int:
  """Returns the bits that say which `num_kept` of `size` numbers are sent.

  This is a list of positions or, where that is shorter, a bit for each number. Nothing is needed if
  all are sent.
  """
  if num_kept >= size:
    return 0
  # Both sides know both lengths, so nothing need say which of the two forms it is.
  return min(codes(num_kept, size), size)


def ternary_digits(size: int) -> int:
  """Returns the bits of `size` numbers of three values: five of them in a byte (3^5 <= 2^8)."""
  return 8 * -(-size // 5)
