"""Reading .npz files that may be damaged or hostile.

An array is allocated only after its header agrees with the archive's directory, that with the
file's size, and all of it with the memory there is. Pickled objects are never loaded.
"""

import os
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import archives, memory
from tff_adaptive_tasks import errors


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
      _decoded(f'{path}: {key}', archives.check_size, members[key], os.path.getsize(path))
      _decoded(f'{path}: {key}', archives.check_array, archive, members[key])
    needed, free = sum(members[k].file_size for k in keys), memory.available_memory()
    if needed > free:
      raise errors.DataError(
        f'{path} holds {needed:,} bytes of {", ".join(keys)} but {free:,} bytes of memory are '
        'available; use a smaller file or a larger machine'
      )
    return {k: _decoded(f'{path}: {k}', archives.read_array, archive, members[k]) for k in keys}


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
