"""The border for files that a user names: what is wrong with one is one line, with its name."""

import contextlib
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence

import numpy as np

from tff_adaptive._utils import archives, memory
from tff_adaptive.runs import capacity
from tff_adaptive_tasks import errors


def existing(path: str) -> str:
  """The path of a regular file, ~ resolved; DataError if there is none."""
  path = os.path.expanduser(path)
  if os.path.isdir(path):
    raise errors.DataError(f'{path} is a folder: name one file in it')
  if not os.path.isfile(path):  # Nor is a pipe a file, which would be waited for.
    raise errors.DataError(f'there is no file {path}; a relative path is one from {os.getcwd()}')
  return path


@contextlib.contextmanager
def border(what: str, fix: str = 'correct the file, or fetch it again') -> Iterator[None]:
  """Turns whatever a parser raises into a `DataError` of one line.

  On damaged bytes zipfile, zlib, pandas, pyarrow, SQLite and NumPy raise dozens of unrelated
  classes, some of which (RecursionError, MemoryError) say nothing of the file. `what` is the file,
  with the place in it where that is known.
  """
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # Such as NumPy's, of headers that Python 2 wrote.
      yield
  except errors.DataError:
    raise
  except Exception as error:
    reason = ' '.join(str(error).split())[:300] or type(error).__name__
    raise errors.DataError(f'{what} cannot be read ({reason}); {fix}') from None


def check_memory(needed: int, what: str) -> None:
  """ValueError if more bytes are needed than there are."""
  free = memory.available_memory()
  if needed > free:
    raise ValueError(
      f'{what}, which take {capacity.human(needed)} where {capacity.human(free)} of memory are '
      'available: leave out rows, or columns of names and dates'
    )


def read_npz(path: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
  """Reads arrays from an .npz file.

  DataError if the file or one of them is damaged, missing, made of Python objects or larger than
  the memory available.
  """
  with border(path), zipfile.ZipFile(path) as archive:
    sizes = {e.filename.removesuffix('.npy'): e.file_size for e in archive.infolist()}
    missing = [key for key in keys if key not in sizes]
    if missing:
      raise ValueError(f'it lacks {", ".join(missing)}; it has {", ".join(sizes) or "no arrays"}')
    check_memory(sum(sizes[key] for key in keys), f'it holds {", ".join(keys)}')
    found = {}
    for key in keys:
      with border(f'{path}: {key}'):
        found[key] = archives.read_array(archive, f'{key}.npy')
  return found
