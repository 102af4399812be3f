"""TFF's data files on disk: found in a folder, or downloaded whole into TFF's cache."""

import os
import struct
import tempfile
from collections.abc import Callable
from typing import Any

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files

_HEADER_BYTES = 100


def check_complete(path: str) -> None:
  """Refuses a file that is missing, is not SQLite or lacks its end.

  SQLite's header says how many pages the file has, so a partly downloaded file is recognised by its
  size alone, however large it is.

  Args:
    path: The file.

  Raises:
    DataError: With the file's name and what is wrong.
  """
  path = files.existing(path)
  with files.border(path), open(path, 'rb') as f:
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


def find_tff_file(name: str, data_dir: str | None, download: Callable[[str], Any]) -> str:
  """Finds one of TFF's files in a folder, or in TFF's cache after downloading it if need be.

  A download goes into a folder of its own and is moved into the cache only when it is whole: an
  interrupted one is never mistaken for the data.

  Args:
    name: The file's name without its folder, such as 'emnist_all.sqlite'.
    data_dir: The folder with TFF's files; None means TFF's cache, `~/.tff`.
    download: Fetches the file into the folder it is given, by TFF's own loader.

  Returns:
    The file's path; it is complete.

  Raises:
    DataError: If the file is missing or incomplete or the download fails.
  """
  if data_dir is not None:
    path = os.path.join(data_dir, name)
    if not os.path.isfile(path):
      raise errors.DataError(
        f'there is no {name} in {data_dir}; name a folder that holds it, or none to download it'
      )
    check_complete(path)
    return path
  cache = os.path.join(os.path.expanduser('~'), '.tff')
  path = os.path.join(cache, name)
  if os.path.exists(path):
    check_complete(path)
    return path
  with files.border(f'the download of {name}', 'try again, or name a folder that has the file'):
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='download-', dir=cache) as folder:
      download(folder)
      fetched = os.path.join(folder, name)
      try:
        check_complete(fetched)
      except errors.DataError as error:
        raise ValueError(str(error)) from error  # It is the download that failed.
      os.replace(fetched, path)
  return path
