"""Opens files that a user names, with errors of one line that name the file."""

import contextlib
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence

import numpy as np

from tff_adaptive._utils import archives, error_text
from tff_adaptive_tasks import errors


def existing(path: str) -> str:
  """Returns the path of a regular file with ~ resolved. Raises DataError if there is none."""
  path = os.path.expanduser(path)
  if os.path.isdir(path):
    raise errors.DataError(f'{path} is a folder: name one file in it')
  if not os.path.isfile(path):  # A pipe is refused, too: reading it would wait.
    raise errors.DataError(f'there is no file {path}; a relative path is one from {os.getcwd()}')
  return path


@contextlib.contextmanager
def border(what: str, fix: str = 'correct the file, or fetch it again') -> Iterator[None]:
  """A context that turns any error of a parser into a one-line `DataError`, and hides warnings.

  `what` is the file and, if known, the place in it; `fix` is the advice that ends the message.
  For damaged bytes zipfile, zlib, pandas, pyarrow, SQLite and NumPy raise dozens of unrelated
  errors, some of which, such as MemoryError, say nothing about the file.
  """
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # Such as NumPy's, of headers that Python 2 wrote.
      yield
  except errors.DataError:
    raise
  # Parsers of damaged files raise anything, from zlib.error to MemoryError.
  except Exception as error:
    reason = error_text.in_brief(error) or type(error).__name__
    raise errors.DataError(f'{what} cannot be read ({reason}); {fix}') from None


def read_npz(path: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
  """Reads the arrays named `keys` from an .npz file.

  Raises DataError if the file or an array is missing or damaged, or an array has Python objects.
  """
  arrays = {}
  with border(path), zipfile.ZipFile(path) as archive:
    names = [name.removesuffix('.npy') for name in archive.namelist()]
    for key in keys:
      if key not in names:
        raise ValueError(f'it lacks {key}; it has {", ".join(names) or "no arrays"}')
      with border(f'{path}: {key}'):
        arrays[key] = archives.read_array(archive, f'{key}.npy')
  return arrays
