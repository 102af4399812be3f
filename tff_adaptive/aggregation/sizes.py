"""The bytes of a client's update with an aggregator. Imports no TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any

_BITS_OF_INTEGER = 28  # Those that TensorFlow's encoder uses of an int32, whose varint has 4 bytes.
_RANGE = 8  # The least and the largest number of a tensor, float32.


def update_bytes(
  aggregator: str, values: Mapping[str, Any], sizes: Sequence[int], bytes_per_parameter: int = 4
) -> int:
  """Returns the bytes that a client sends for its update.

  Only `compression` sends fewer than the model has. It packs the integers of a large tensor into
  int32, as `tff.aggregators.EncodedSumFactory` does.

  Args:
    aggregator: A name in `AGGREGATORS`.
    values: Its options by name.
    sizes: The number of elements of each of the model's trainable tensors.
    bytes_per_parameter: The size of an element that is not compressed.
  """
  if aggregator != 'compression':
    return bytes_per_parameter * sum(sizes)
  # A tensor's codes are packed by themselves: hence the rounding up for each.
  total = 0
  for size in sizes:
    if size > values['threshold']:
      total += 4 * -(-size * values['bits'] // _BITS_OF_INTEGER) + _RANGE
    else:
      total += bytes_per_parameter * size
  return total
