"""Reads arrays from .npz files that may be damaged or hostile."""

import zipfile
from typing import Any

import numpy as np


def read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
  """Reads an array that is at most as large as the archive's directory says.

  Otherwise NumPy would allocate the memory that the array's header declares.

  Raises:
    ValueError: If it is not an array, contains Python objects, or has another length than its
      header says.
    Exception: Any error that zipfile, zlib and NumPy raise for damaged bytes.
  """
  with archive.open(name) as stream:
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):  # At the end its checksum is compared.
      raise ValueError(f'it has more bytes than {list(array.shape)} of {array.dtype} take')
  return array
