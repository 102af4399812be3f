"""Reads arrays from .npz files that may be damaged or hostile."""

import zipfile
from typing import Any

import numpy as np


def read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
  """Reads an array from an archive. Arrays of Python objects are refused.

  NumPy reserves the memory that the array's header declares, but fills no more than there is data.

  Raises:
    ValueError: If the entry is not an array, has Python objects, or another length than it says.
    Exception: Any error that zipfile, zlib and NumPy raise for damaged bytes.
  """
  with archive.open(name) as stream:
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):  # Reading to the end also checks the checksum.
      raise ValueError(f'it has more bytes than {list(array.shape)} of {array.dtype} take')
  return array
