"""Tasks on folders of pictures: a folder for each client, in it one for each class."""

import os
from typing import Any

import numpy as np

from tff_adaptive_tasks import errors, own_data, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import files

_MODES = {1: 'L', 3: 'RGB'}  # Pillow's, by channels.


def from_image_folder(
  folder: str, *, size: tuple[int, int] | None = None, channels: int = 3, **options: Any
) -> task_lib.Task:
  """A task on pictures in files FOLDER/CLIENT/CLASS/NAME, of whatever formats Pillow reads.

  Files and folders whose names begin with a dot do not count.

  Args:
    folder: The folder with a folder for each client.
    size: Height and width to which all are brought; by default they must have the same.
    channels: 3 for colours, 1 for grey.
    **options: As `from_arrays` takes them: model, validation, validation_by, seed, name, loss,
      metrics, threshold.

  Returns:
    The task; inputs are float32 [height, width, channels] in [0, 1], which its `preparation` makes
    of bytes.

  Raises:
    DataError: If something else is there than such files, one cannot be read or has another size,
      or `from_arrays` refuses.
  """
  from PIL import Image  # Slow to import and needed here only.

  if channels not in _MODES:
    raise errors.DataError(f'channels is {channels!r:.80}; it must be 1 (grey) or 3 (colours)')
  folder = os.path.expanduser(folder)
  found: list[tuple[str, str, str]] = []
  for client in _entries(folder):
    for label in _entries(os.path.join(folder, client)):
      place = os.path.join(folder, client, label)
      found += [(client, label, os.path.join(place, name)) for name in _entries(place)]
  x: Any = None
  for row, (_, _, path) in enumerate(found):
    with files.border(path, 'remove it, or write it again'):
      image = Image.open(files.existing(path)).convert(_MODES[channels])  # It closes the file.
      pixels = np.asarray(image if size is None else image.resize(size[::-1]))
    if x is None:
      with files.border(folder, 'give a smaller size'):  # Bytes, floats, and what is split of them.
        files.check_memory(10 * len(found) * pixels.size, f'it has {len(found):,} such pictures')
      x = np.empty([len(found), *pixels.shape[:2], channels], np.uint8)
    if pixels.shape[:2] != x.shape[1:3]:
      raise errors.DataError(
        f'{path} has {list(pixels.shape[:2])} pixels, {found[0][2]} has {list(x.shape[1:3])}: give'
        ' size=(height, width)'
      )
    x[row] = pixels.reshape(x.shape[1:])
  if x is None:
    raise errors.DataError(f'{folder} has no pictures: it must have files CLIENT/CLASS/NAME')
  prepared = preparation_lib.Preparation(deviation=255.0)
  clients, labels = ([row[i] for row in found] for i in (0, 1))
  options = {'source': folder, 'preparation': prepared, **options}
  return own_data.from_arrays(prepared(x), labels, clients, **options)


def _entries(folder: str) -> list[str]:
  """The names in a folder, sorted; DataError if it is none."""
  if not os.path.isdir(folder):
    raise errors.DataError(f'{folder} is no folder: write pictures as FOLDER/CLIENT/CLASS/NAME')
  return sorted(name for name in os.listdir(folder) if not name.startswith('.'))
