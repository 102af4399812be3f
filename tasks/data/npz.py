"""Reading .npz files that may be damaged or hostile."""

import zipfile
from collections.abc import Sequence

import numpy as np

from tff_adaptive._utils import archives
from tff_adaptive_tasks.data import files


def read(path: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
  """Reads arrays from an .npz file.

  DataError if the file or one of them is damaged, missing, made of Python objects or larger than
  the memory available.
  """
  with files.border(path), zipfile.ZipFile(path) as archive:
    sizes = {e.filename.removesuffix('.npy'): e.file_size for e in archive.infolist()}
    missing = [key for key in keys if key not in sizes]
    if missing:
      raise ValueError(f'it lacks {", ".join(missing)}; it has {", ".join(sizes) or "no arrays"}')
    files.check_memory(sum(sizes[key] for key in keys), f'it holds {", ".join(keys)}')
    found = {}
    for key in keys:
      with files.border(f'{path}: {key}'):
        found[key] = archives.read_array(archive, f'{key}.npy')
  return found
