"""Reading .npz files that may be damaged or hostile; see `_utils.archives`."""

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
    members = {n.removesuffix('.npy'): m for n, m in archives.entries(archive, path).items()}
    missing = [key for key in keys if key not in members]
    if missing:
      raise ValueError(f'it lacks {", ".join(missing)}; it has {", ".join(members) or "no arrays"}')
    files.check_memory(sum(members[key].file_size for key in keys), f'it holds {", ".join(keys)}')
    found = {}
    for key in keys:
      with files.border(f'{path}: {key}'):
        archives.check_array(archive, members[key])
        found[key] = archives.read_array(archive, members[key])
  return found
