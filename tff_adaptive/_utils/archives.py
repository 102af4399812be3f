"""Arrays in .npz files that may be damaged or hostile.

An array is allocated only after its header agrees with the archive's directory, and that with the
file's size. Pickled objects are never loaded.
"""

import math
import os
import warnings
import zipfile
from typing import Any

import numpy as np

# What NumPy and Keras write. Deflate makes no more than 1,032 bytes of one.
_MOST_BYTES_OF_ONE = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_HEADER_READERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}
MOST_ENTRIES = 10_000


def entries(archive: zipfile.ZipFile, path: str) -> dict[str, zipfile.ZipInfo]:
  """The entries of an archive, whose file is `path`, by name.

  Raises:
    ValueError: If there are more than `MOST_ENTRIES`, two have one name, or one declares a size
      that the file cannot hold.
  """
  found = archive.infolist()
  if len(found) > MOST_ENTRIES:
    raise ValueError(f'it has {len(found):,} entries; there may be {MOST_ENTRIES:,}')
  names: dict[str, zipfile.ZipInfo] = {}
  for entry in found:
    if entry.filename in names:
      raise ValueError(f'it has two entries {entry.filename!r:.80}')
    names[entry.filename] = entry
    check_size(entry, os.path.getsize(path))
  return names


def check_size(entry: zipfile.ZipInfo, file_bytes: int) -> None:
  """ValueError if an entry declares more bytes than an archive of `file_bytes` can hold."""
  most = _MOST_BYTES_OF_ONE.get(entry.compress_type)
  if most is None or entry.flag_bits & 1:
    raise ValueError('it is encrypted or compressed by other means than NumPy uses')
  if entry.compress_size > file_bytes or entry.file_size > most * entry.compress_size:
    raise ValueError(
      f'it declares {entry.file_size:,} bytes, which a file of {file_bytes:,} cannot hold'
    )


def check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
  """ValueError if an array's header and the size of its entry do not agree."""
  with archive.open(entry) as stream:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADER_READERS:
      raise ValueError(f'its format version is {version}')
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # NumPy's, of headers that Python 2 wrote.
      shape, _, dtype = _HEADER_READERS[version](stream)
    header_bytes = stream.tell()
  if dtype.hasobject:
    raise ValueError('it is made of Python objects, which are never loaded')
  declared = math.prod(shape) * dtype.itemsize
  if min(shape, default=0) < 0 or header_bytes + declared != entry.file_size:
    raise ValueError(
      f'its header says {list(shape)} of {dtype}, {declared:,} bytes, where there are '
      f'{entry.file_size - header_bytes:,}'
    )


def read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
  """Reads an array that was checked."""
  with archive.open(entry) as stream:  # Read to its end, where its checksum is compared.
    return np.lib.format.read_array(stream, allow_pickle=False)
