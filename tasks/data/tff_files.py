"""TFF's data files on disk: found in a folder, or downloaded whole into TFF's cache."""

import functools
import hashlib
import os
import re
import struct
import tempfile

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files

_HEADER_BYTES = 100
_BLOCK_BYTES, _BLOCKS = 1 << 20, 1024


def check_complete(path: str) -> None:
  """Refuses a file that is missing, is not SQLite or lacks its end.

  SQLite's header says how many pages the file has, so a partly downloaded file is recognised by its
  size alone, however large it is.
  """
  with files.border(path), open(files.existing(path), 'rb') as f:
    header = f.read(_HEADER_BYTES)
    size = os.path.getsize(path)
  if len(header) < _HEADER_BYTES or not header.startswith(b'SQLite format 3\0'):
    raise errors.DataError(
      f'{path} is not a SQLite file ({size} bytes); delete it and fetch it again'
    )
  page = struct.unpack('>H', header[16:18])[0]
  page = 65536 if page == 1 else page
  expected = page * struct.unpack('>I', header[28:32])[0]
  if size < expected:
    raise errors.DataError(
      f'{path} is incomplete: {size} bytes of {expected}; delete it and fetch it again'
    )


def fingerprint(path: str) -> tuple[int, str]:
  """The size and a SHA-256 of a file, of one larger than a GiB over 1,024 blocks of a MiB."""
  status = os.stat(path)
  return status.st_size, _digest(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _digest(path: str, size: int, modified: int) -> str:
  del modified
  total = hashlib.sha256()
  with open(path, 'rb') as file:
    for at in range(0, size, max(_BLOCK_BYTES, size // _BLOCKS)):
      file.seek(at)
      total.update(file.read(_BLOCK_BYTES))
  return total.hexdigest()


def check_same(path: str, expected: tuple[int, str]) -> None:
  """DataError if a file, perhaps on another machine, is not the one with this fingerprint."""
  if not os.path.isfile(path):
    raise errors.DataError(
      f'{path} is not on this machine: copy it there, to the same path, or keep it on storage that'
      ' all machines share'
    )
  if fingerprint(path) != expected:
    raise errors.DataError(
      f"{path} differs from the trainer's file of that name: copy the trainer's file there"
    )


def find_tff_file(name: str, data_dir: str | None) -> str:
  """Finds one of TFF's files in a folder, or in TFF's cache after downloading it if need be.

  A download goes into a folder of its own and is moved into the cache only when it is whole: an
  interrupted one is never mistaken for the data.

  Args:
    name: Such as 'emnist_all.sqlite'; what is before '_' or '.' is the module of
      `tff.simulation.datasets` that downloads it.
    data_dir: The folder with TFF's files; None means TFF's cache, `~/.tff`.

  Returns:
    The file's path; it is complete.
  """
  cache = data_dir or os.path.join(os.path.expanduser('~'), '.tff')
  path = os.path.join(cache, name)
  if os.path.exists(path):
    check_complete(path)
    return path
  if data_dir is not None:
    raise errors.DataError(
      f'there is no {name} in {data_dir}; name a folder that holds it, or none to download it'
    )
  with files.border(f'the download of {name}', 'try again, or name a folder that has the file'):
    import tensorflow_federated as tff  # Slow to import and needed for a download only.

    module = getattr(tff.simulation.datasets, re.split('[._]', name)[0])
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='download-', dir=cache) as folder:
      module.load_data(cache_dir=folder)
      check_complete(os.path.join(folder, name))
      os.replace(os.path.join(folder, name), path)
  return path
