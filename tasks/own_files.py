"""Tasks from a user's own pictures, and from Hugging Face's data sets."""

import glob
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from tff_adaptive_tasks import (
  errors,
  own_data,
  own_tables,
  preparation as preparation_lib,
  task as task_lib,
)
from tff_adaptive_tasks.data import files, pictures, tables

_OF_SYSTEMS = ('__macosx', '@eadir', 'thumbs.db', 'desktop.ini')  # Added by systems, lower case.


def from_image_folder(
  folder: str, *, size: tuple[int, int] | None = None, channels: int = 3, **options: Any
) -> task_lib.Task:
  """Builds a task from pictures in files FOLDER/CLIENT/CLASS/NAME.

  Files with less than three names below FOLDER are ignored, and so are names that begin with a dot
  and what systems add to folders (__MACOSX, Thumbs.db).

  Args:
    folder: The folder with a folder for each client.
    size: Height and width to which all pictures are resized. By default they must have equal sizes.
    channels: 3 for colour, 1 for grey.
    **options: Other arguments of `from_arrays`, such as model, validation, seed, loss or metrics.

  Returns:
    The task. Its inputs are float32 [height, width, channels] in [0, 1]; its `preparation` makes
    them from uint8 pixels, which `read_picture` reads as it is done here.

  Raises:
    DataError: If there are no such files, a file cannot be read, pictures differ in size although
      `size` is None, or `from_arrays` raises it.
  """
  pictures.check_options(size, channels)
  if not isinstance(folder, (str, os.PathLike)):
    raise errors.DataError(f'folder is {folder!r:.80}; it must be a path')
  folder = os.path.expanduser(folder)
  files_of = _files_of_folder(folder)
  # The path is also the name of a picture in messages.
  x = pictures.read_pictures(((path, path) for _, path in files_of), size, channels)
  clients = [parts[0] for parts, _ in files_of]
  labels = [parts[1] for parts, _ in files_of]
  prepared = preparation_lib.Preparation(deviation=255.0, picture=x.shape[1:])
  options = {'source': folder, 'preparation': prepared, **options}
  return own_data.from_arrays(prepared(x), labels, clients, **options)


def from_huggingface(
  dataset: Any,
  client: str,
  label: str,
  *,
  features: str | Sequence[str] | None = None,
  size: tuple[int, int] | None = None,
  channels: int | None = None,
  missing: str = 'refuse',
  unseen: str = 'refuse',
  dates: str = 'refuse',
  **options: Any,
) -> task_lib.Task:
  """Builds a task from a data set of Hugging Face with a column of client ids.

  Args:
    dataset: A `datasets.Dataset`, which is one split and not streamed.
    client: The column of client ids, strings or integers.
    label: The column to predict. Strings, integers and class labels are classes; decimals are
      numbers. Class labels keep their names.
    features: One column of arrays or images of one shape, or columns of numbers and strings to
      predict from. The default is the column of images, if there is one, else all other columns
      except those that number or identify the rows.
    size: For images: height and width to which they are resized.
    channels: For images: 3 for colour, 1 for grey. By default 1 if all of them are grey.
    missing: For columns of numbers and strings, as in `from_csv`.
    unseen: For columns of strings, as in `from_csv`.
    dates: For columns of dates, as in `from_csv`.
    **options: Arguments of `from_arrays`: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold, kind.

  Returns:
    The task. Inputs that are images are float32 [height, width, channels] in [0, 1], as in
    `from_image_folder`.

  Raises:
    DataError: If `dataset` is empty or no `Dataset`, a column or cell is missing, or `from_arrays`
      raises it.
  """
  import datasets  # Slow to import, and optional.

  source = 'huggingface dataset'
  if not isinstance(dataset, datasets.Dataset) or not len(dataset):
    raise errors.DataError(
      f'dataset is a {type(dataset).__name__}; give a datasets.Dataset with rows, such as'
      " datasets.load_dataset(NAME, split='train')"
    )
  pictures.check_options(size, channels)
  names = {name: tables.composed(name) for name in dataset.column_names}
  # A format such as torch would convert each cell.
  dataset = dataset.with_format(None).rename_columns(names)
  kinds = dataset.features
  if features is None:
    images = [name for name, kind in kinds.items() if isinstance(kind, datasets.Image)]
    if len(images) > 1:
      raise errors.DataError(f'there are the images {", ".join(images)}: name one by features=')
    if images:
      features = images[0]
  if not isinstance(label, str):
    raise errors.DataError(f'label is {label!r:.80}; it must be a text')
  own_tables.check_columns(source, dataset.column_names, client, label, features)
  client = tables.composed(client)
  label = tables.composed(label)
  if isinstance(features, str):
    features = tables.composed(features)
  is_table = not isinstance(features, str)
  is_image = not is_table and isinstance(kinds[features], datasets.Image)
  options = {'source': source, **options}
  # An option without effect is a mistake of the caller's.
  for given, default, is_used, what in (
    (size, None, is_image, 'size= is for a column of images'),
    (channels, None, is_image, 'channels= is for a column of images'),
    (missing, 'refuse', is_table, 'missing= is for columns of a table'),
    (unseen, 'refuse', is_table, 'unseen= is for columns of a table'),
    (dates, 'refuse', is_table, 'dates= is for columns of a table'),
  ):
    if given != default and not is_used:
      raise errors.DataError(f'{what}: leave it out')
  labels = _named(dataset[label][:], kinds[label])
  owners = _named(dataset[client][:], kinds[client])
  if is_table:
    table = dataset.to_pandas().assign(**{label: labels, client: owners})
    return own_tables.from_frame(
      table,
      client,
      label,
      features=features,
      missing=missing,
      unseen=unseen,
      dates=dates,
      **options,
    )
  for name, values in ((label, labels), (client, owners)):
    _check_filled(source, name, values)
  options = {'targets': [label], **options}
  if not is_image:
    with files.border(f'the column {features!r}', 'bring its arrays to one shape by dataset.map'):
      x = np.stack([np.asarray(row) for row in dataset.with_format('numpy')[features][:]])
  else:
    pixels = pictures.read_pictures(_images(dataset, str(features)), size, channels)
    prepared = preparation_lib.Preparation(deviation=255.0, picture=pixels.shape[1:])
    options = {'preparation': prepared, **options}
    x = prepared(pixels)
  return own_data.from_arrays(x, labels.tolist(), owners.to_numpy(), **options)


def _files_of_folder(folder: str) -> list[tuple[tuple[str, ...], str]]:
  """Returns the names CLIENT, CLASS and NAME, composed, and the path of each picture, sorted."""
  if not os.path.isdir(folder):
    raise errors.DataError(f'there is no folder {folder}; a relative path is from {os.getcwd()}')
  files_of = []
  for path in glob.glob(os.path.join(glob.escape(folder), '*', '*', '*')):
    parts = tuple(map(tables.composed, path.split(os.sep)[-3:]))
    # macOS, Windows and storage servers add these to folders that are copied.
    if any(part.lower() in _OF_SYSTEMS for part in parts):
      continue
    if os.path.isdir(path):
      first = os.sep.join(path.split(os.sep)[:-2])
      raise errors.DataError(
        f'{path} is a folder, where a picture should be: pictures are files CLIENT/CLASS/NAME in '
        f'the folder that is given; there is a level too many: give {first}, or take a level away'
      )
    files_of.append((parts, path))
  if not files_of:
    files_above = glob.glob(os.path.join(glob.escape(folder), '*', '*.*'))
    above = ''
    if files_above:
      above = f' (there is {files_above[0]}: a level is missing)'
    raise errors.DataError(f'{folder} has no pictures: it must have files CLIENT/CLASS/NAME{above}')
  return sorted(files_of)


def _images(dataset: Any, column: str) -> Iterator[tuple[str, str | BinaryIO]]:
  """Yields a name and the undecoded file of each image, so that only `pictures` decodes any."""
  import datasets
  import fsspec  # A dependency of datasets.

  undecoded = dataset.cast_column(column, datasets.Image(decode=False))
  for row, image in enumerate(undecoded[column]):
    name = f'row {row} of the column {column!r}'
    if image is None:
      raise errors.DataError(f'{name} is empty (rows count from 0): leave the row out')
    if image['bytes'] is not None:
      yield name, io.BytesIO(image['bytes'])
    elif os.path.exists(image['path']):
      yield image['path'], files.existing(image['path'])
    else:
      with files.border(f'{name}, {image["path"]},'), fsspec.open(image['path']) as file:
        content = file.read()
      yield name, io.BytesIO(content)


def _named(values: Sequence[Any], kind: Any) -> 'pd.Series[Any]':
  """Returns a column with the names of class labels; -1, for no label, becomes a gap."""
  import datasets

  column = pd.Series(values)
  # Class labels are stored as numbers; people know their names.
  if isinstance(kind, datasets.ClassLabel):
    return column.map(dict(enumerate(kind.names)))
  return column


def _check_filled(where: str, name: str, values: 'pd.Series[Any]') -> None:
  """Raises DataError if a column has a missing value. The message names the first such row."""
  empty = np.flatnonzero(values.isna())
  if empty.size:
    raise errors.DataError(
      f'{where}: the column {name!r} is empty in row {empty[0]} (rows count from 0): fill it in or '
      'leave the row out'
    )
