"""Arrays in .npz files that may be damaged or hostile."""

import zipfile
from typing import Any

import numpy as np


def read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
  """Reads an entry, as large as the archive's directory says at most.

  NumPy asks for the memory that the array's header declares, and fills no more of it than there is.

  Raises:
    ValueError: If it is no array, is of Python objects, or ends elsewhere than its header says.
    Exception: Of whatever kind zipfile, zlib and NumPy raise on damaged bytes.
  """
  with archive.open(name) as stream:
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):  # At the end its checksum is compared.
      raise ValueError(f'it has more bytes than {list(array.shape)} of {array.dtype} take')
  return array
