"""Reading .npz files that may be damaged or hostile.

An array is allocated only after its header agrees with the archive's directory, that with the
file's size, and all of it with the memory there is. Pickled objects are never loaded.
"""

import math
import os
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks import errors
from tff_adaptive.training import capacity

# What NumPy writes. Deflate makes no more than 1,032 bytes of one.
_MOST_BYTES_OF_ONE = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_HEADER_READERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}


def read(path: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
  """Reads arrays from an .npz file.

  Args:
    path: The file.
    keys: The names of the arrays wanted; others are not looked at.

  Returns:
    The arrays by name.

  Raises:
    DataError: If the file or one of the arrays is damaged, missing, made of Python objects or
      larger than the memory available.
  """
  archive = _decoded(path, zipfile.ZipFile, path)
  with archive:
    members = {m.filename.removesuffix('.npy'): m for m in archive.infolist()}
    missing = [k for k in keys if k not in members]
    if missing:
      raise errors.DataError(
        f'{path} lacks {", ".join(missing)}; it has {", ".join(members) or "no arrays"}'
      )
    for key in keys:
      _decoded(f'{path}: {key}', _check_size, archive, members[key], os.path.getsize(path))
    needed, free = sum(members[k].file_size for k in keys), capacity.available_memory()
    if needed > free:
      raise errors.DataError(
        f'{path} holds {needed:,} bytes of {", ".join(keys)} but {free:,} bytes of memory are '
        'available; use a smaller file or a larger machine'
      )
    return {k: _decoded(f'{path}: {k}', _read_array, archive, members[k]) for k in keys}


def _decoded(what: str, decode: Any, *arguments: Any) -> Any:
  """What a decoder of bytes from outside gives; whatever it raises becomes a DataError.

  On damaged bytes zipfile, zlib, tokenize, ast and NumPy raise a dozen unrelated classes, some of
  which (NotImplementedError, RecursionError, MemoryError) say nothing of the file.
  """
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # NumPy's, of headers that Python 2 wrote.
      return decode(*arguments)
  except errors.DataError:
    raise
  except Exception as e:
    reason = ' '.join(str(e).split())[:200] or type(e).__name__
    raise errors.DataError(f'{what} cannot be read ({reason}); fetch the file again') from None


def _check_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file_bytes: int) -> None:
  """Refuses an array whose header, directory entry and file do not agree about its size."""
  most = _MOST_BYTES_OF_ONE.get(member.compress_type)
  if most is None or member.flag_bits & 1:
    raise ValueError('it is encrypted or compressed by other means than NumPy uses')
  if member.compress_size > file_bytes or member.file_size > most * member.compress_size:
    raise ValueError(
      f'it declares {member.file_size:,} bytes, which a file of {file_bytes:,} cannot hold'
    )
  with archive.open(member) as stream:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADER_READERS:
      raise ValueError(f'its format version is {version}')
    shape, _, dtype = _HEADER_READERS[version](stream)
    header_bytes = stream.tell()
  if dtype.hasobject:
    raise ValueError('it is made of Python objects, which are never loaded')
  declared = math.prod(shape) * dtype.itemsize
  if min(shape, default=0) < 0 or header_bytes + declared != member.file_size:
    raise ValueError(
      f'its header says {list(shape)} of {dtype}, {declared:,} bytes, where there are '
      f'{member.file_size - header_bytes:,}'
    )


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
  with archive.open(member) as stream:  # Read to its end, where its checksum is compared.
    return np.lib.format.read_array(stream, allow_pickle=False)
