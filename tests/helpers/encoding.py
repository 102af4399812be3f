"""Encodes compressed vectors as strings of bits, as a program that sends them would, and decodes.

An encoder takes a vector and what the server is to decode of it, and returns the message. Its
decoder knows the message, the number of coordinates and the compressor, and nothing else.
"""

import numpy as np


def of_integer(number, width):
  """An integer as a string of bits; no bit for a width of 0."""
  if width:
    return format(int(number), f'0{width}b')
  return ''


def of_float(number):
  return of_integer(np.float32(number).view(np.uint32), 32)


class Reader:
  """Reads a message from its beginning."""

  def __init__(self, message):
    self.message = message
    self.position = 0

  def bits(self, width):
    text = self.message[self.position : self.position + width]
    assert len(text) == width
    self.position += width
    return text

  def integer(self, width):
    return int(self.bits(width) or '0', 2)

  def float(self):
    return np.uint32(self.integer(32)).view(np.float32)


def width_of(num_levels):
  return (num_levels - 1).bit_length()


def positions(indices, size):
  """The positions as a list, or as a bit for each coordinate; nothing if all are sent."""
  if len(indices) == size:
    return ''
  listed = ''.join(of_integer(i, width_of(size)) for i in indices)
  if len(listed) <= size:
    return listed
  flags = np.zeros(size, bool)
  flags[list(indices)] = True
  return of_flags(flags)


def of_flags(flags):
  """A bit for each."""
  return ''.join(str(int(flag)) for flag in flags)


def read_positions(reader, num_kept, size):
  if num_kept == size:
    return list(range(size))
  if num_kept * width_of(size) <= size:
    return [reader.integer(width_of(size)) for _ in range(num_kept)]
  return [i for i, bit in enumerate(reader.bits(size)) if bit == '1']


class Floats:
  """All numbers as float32."""

  def encode(self, values, decoded):
    return ''.join(map(of_float, decoded))

  def decode(self, reader, size):
    return np.array([reader.float() for _ in range(size)], np.float32)


class Sign:
  def encode(self, values, decoded):
    scale = np.abs(decoded).max()
    return of_float(scale) + of_flags(np.less(decoded, 0))

  def decode(self, reader, size):
    scale = reader.float()
    values = {'0': scale, '1': -scale}
    return np.array([values[bit] for bit in reader.bits(size)])


class Qsgd:
  def __init__(self, levels):
    self.levels = levels

  def encode(self, values, decoded):
    norm = np.sqrt(np.sum(np.float64(values) ** 2))
    width = width_of(2 * self.levels + 1)
    codes = np.round(np.float64(decoded) / norm * self.levels) + self.levels
    return of_float(norm) + ''.join(of_integer(code, width) for code in codes)

  def decode(self, reader, size):
    norm = reader.float()
    width = width_of(2 * self.levels + 1)
    codes = np.array([reader.integer(width) for _ in range(size)])
    return (codes - self.levels) * (norm / self.levels)


class Quantize:
  def __init__(self, bits):
    self.bits = bits

  def encode(self, values, decoded):
    low = values.min()
    high = values.max()
    codes = np.round((np.float64(decoded) - low) / (np.float64(high) - low) * (2**self.bits - 1))
    return of_float(low) + of_float(high) + ''.join(of_integer(c, self.bits) for c in codes)

  def decode(self, reader, size):
    low = reader.float()
    high = reader.float()
    codes = np.array([reader.integer(self.bits) for _ in range(size)])
    return low + codes * ((high - low) / (2**self.bits - 1))


class Ternary:
  """Five digits of base 3 in a byte."""

  def encode(self, values, decoded):
    digits = np.sign(decoded).astype(int) + 1
    digits = np.append(digits, [0] * (-len(digits) % 5))
    of_bytes = (of_integer(five @ 3 ** np.arange(5), 8) for five in digits.reshape(-1, 5))
    return of_float(np.abs(values).max()) + ''.join(of_bytes)

  def decode(self, reader, size):
    scale = reader.float()
    digits = []
    for _ in range(-(-size // 5)):
      byte = reader.integer(8)
      digits += [byte // 3**i % 3 for i in range(5)]
    return (np.array(digits[:size]) - 1) * scale


class Halves:
  """16-bit numbers: float16, or the upper half of a float32, which is bfloat16."""

  def __init__(self, is_bfloat16):
    self.is_bfloat16 = is_bfloat16

  def encode(self, values, decoded):
    if self.is_bfloat16:
      numbers = (np.float32(decoded).view(np.uint32) + 0x8000) >> 16
    else:
      numbers = np.float16(decoded).view(np.uint16)
    return ''.join(of_integer(number, 16) for number in numbers)

  def decode(self, reader, size):
    numbers = np.array([reader.integer(16) for _ in range(size)], np.uint32)
    if self.is_bfloat16:
      return (numbers << 16).view(np.float32)
    return numbers.astype(np.uint16).view(np.float16).astype(np.float32)


class Selected:
  """Some numbers, in a format, and where they are: positions, or the seed that they follow from."""

  def __init__(self, num_kept, format_of_values, has_seed=False, factor=1.0):
    self.num_kept = num_kept
    self.format = format_of_values
    self.has_seed = has_seed
    self.factor = factor

  def encode(self, values, decoded):
    indices = np.flatnonzero(decoded)
    assert len(indices) == self.num_kept
    if self.has_seed:
      where = of_integer(123456789, 64)
    else:
      where = positions(indices, len(values))
    self.chosen = indices  # What the server draws from the seed.
    return where + self.format.encode(values[indices], decoded[indices] / self.factor)

  def decode(self, reader, size):
    if self.has_seed:
      reader.integer(64)
      indices = self.chosen
    else:
      indices = read_positions(reader, self.num_kept, size)
    decoded = np.zeros(size, np.float32)
    decoded[indices] = self.factor * self.format.decode(reader, self.num_kept)
    return decoded
