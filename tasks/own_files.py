"""Tasks from a user's own files and data sets: tables, pictures, and Hugging Face's data sets."""

import glob
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import errors, own_data, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import files

# In a column of numbers these texts mean a missing value, as in pandas.
_MISSING = ('NA', 'N/A', 'n/a', '#N/A', '#NA', '<NA>', 'NaN', 'nan', 'NULL', 'null', 'None')
_MODES = {1: 'L', 3: 'RGB'}  # Pillow's, by number of channels.


def from_csv(
  path: str,
  client: str,
  label: str,
  *,
  features: Sequence[str] | None = None,
  separator: str = ',',
  **options: Any,
) -> task_lib.Task:
  """Builds a task from a CSV file with a header.

  Args:
    path: The file, which may be compressed (.gz, .bz2, .xz, .zip).
    client: The column with the rows' client ids, which are read as strings.
    label: The column to predict. Strings and integers are classes; decimals stay numbers.
    features: The columns to predict from; by default all other columns. A column of strings becomes
      one input for each of its categories.
    separator: The separator of cells. Blanks around names and strings are ignored.
    **options: Arguments of `from_arrays`: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold.

  Returns:
    The task. Its `preparation` makes the model's inputs from such a table, in which the columns of
    labels and clients may be missing.

  Raises:
    DataError: If the file cannot be read, a column is missing, a cell is empty or not a number in a
      column of numbers, or `from_arrays` raises it.
  """
  path = files.existing(path)
  with files.border(path):
    table = _read_csv(path, client, separator)
  return _from_frame(table, path, client, label, features, options)


def from_parquet(
  path: str, client: str, label: str, *, features: Sequence[str] | None = None, **options: Any
) -> task_lib.Task:
  """Builds a task from a Parquet file; for arguments, results and errors see `from_csv`.

  The index of a saved data frame is not a column: save `table.reset_index()`.
  """
  path = files.existing(path)
  with files.border(path):
    table = _read_parquet(path)
  return _from_frame(table, path, client, label, features, options)


def from_image_folder(
  folder: str, *, size: tuple[int, int] | None = None, channels: int = 3, **options: Any
) -> task_lib.Task:
  """Builds a task from pictures in files FOLDER/CLIENT/CLASS/NAME, in any format of Pillow.

  Files in other places, and names that begin with a dot, are ignored.

  Args:
    folder: The folder with a folder for each client.
    size: Height and width to which all pictures are resized. By default they must have equal sizes.
    channels: 3 for colour, 1 for grey.
    **options: Other arguments of `from_arrays`, such as model, validation, seed, loss or metrics.

  Returns:
    The task. Its inputs are float32 [height, width, channels] in [0, 1]; its `preparation` makes
    them from uint8 pixels.

  Raises:
    DataError: If there are no such files, a file cannot be read, pictures differ in size although
      `size` is None, or `from_arrays` raises it.
  """
  from PIL import Image  # Slow to import and needed here only.

  if channels not in _MODES:
    raise errors.DataError(f'channels is {channels!r:.80}; it must be 1 (grey) or 3 (colours)')
  folder = os.path.expanduser(folder)
  paths = glob.glob(os.path.join(glob.escape(folder), '*', '*', '*'))
  if not (found := sorted((path.split(os.sep)[-3:], path) for path in paths)):
    raise errors.DataError(f'{folder} has no pictures: it must have files CLIENT/CLASS/NAME')
  pictures: list[np.ndarray] = []
  for _, path in found:
    with files.border(path, 'remove it, or write it again'):
      image: Any = Image.open(files.existing(path))
      if image.mode[0] in 'IF':
        raise ValueError(f'its mode is {image.mode}: a conversion to 8 bits would clip its pixels')
      image = image.convert(_MODES[channels])  # Closes the file.
      pictures.append(np.asarray(image if size is None else image.resize(size[::-1])))
    height, width = pictures[0].shape[:2]
    if pictures[-1].shape[:2] != (height, width):
      raise errors.DataError(
        f'{path} has {list(pictures[-1].shape[:2])} pixels, {found[0][1]} has {[height, width]}: '
        'give size=(height, width)'
      )
  x = np.stack(pictures).reshape(-1, height, width, channels)
  prepared = preparation_lib.Preparation(deviation=255.0)
  clients, labels, _ = zip(*(parts for parts, _ in found))
  options = {'source': folder, 'preparation': prepared, **options}
  return own_data.from_arrays(prepared(x), labels, clients, **options)


def from_huggingface(
  dataset: Any,
  client: str,
  label: str,
  *,
  features: str | Sequence[str] | None = None,
  **options: Any,
) -> task_lib.Task:
  """Builds a task from a data set of Hugging Face with a column of client ids.

  Args:
    dataset: A `datasets.Dataset`, which is one split and not streamed.
    client: The column of client ids, strings or integers.
    label: The column to predict. Strings, integers and class labels are classes; decimals are
      numbers. Class labels keep their names.
    features: One column of arrays or images of one shape, or columns of numbers and strings to
      predict from. The default is the column of images, if there is one, else all other columns.
    **options: Arguments of `from_arrays`: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold.

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
  dataset = dataset.with_format(None)
  if features is None:
    kinds = dataset.features.items()
    images = [name for name, kind in kinds if isinstance(kind, datasets.Image)]
    if len(images) > 1:
      raise errors.DataError(f'there are the images {", ".join(images)}: name one by features=')
    features = images[0] if images else None
  one = [features] if isinstance(features, str) else features or ()
  _check_columns(source, dataset.column_names, client, label, one)
  options = {'source': source, **options}
  kind, labels = dataset.features[label], pd.Series(dataset[label][:])
  if isinstance(kind, datasets.ClassLabel):  # -1, which unlabelled rows have, has no name.
    labels = labels.map(dict(enumerate(kind.names)))
  _check_filled(source, label, labels)
  y = np.asarray(labels.tolist())
  if not isinstance(features, str):
    table = dataset.to_pandas().assign(**{label: y})
    return _from_frame(table, source, client, label, features, options)
  with files.border(f'the column {features!r}', 'bring its arrays to one shape by dataset.map'):
    rows = dataset.with_format('numpy')[features][:]
    if isinstance(dataset.features[features], datasets.Image):
      rows = [row.convert('RGB') if row.mode == 'P' else row for row in dataset[features][:]]
    x = np.stack([np.asarray(row) for row in rows])
  return own_data.from_arrays(x, y, np.asarray(dataset[client][:]), **options)


def _from_frame(
  table: pd.DataFrame,
  path: str,
  client: str,
  label: str,
  features: Sequence[str] | None,
  options: dict[str, Any],
) -> task_lib.Task:
  """Builds a task from a data frame, whose source is `path`; for the rest see `from_csv`."""
  columns = list(map(str, table.columns))
  if features is None:
    features = [c for c in columns if c not in ('', client, label)]  # '': the index of to_csv.
  elif isinstance(features, str):
    features = [features]
  _check_columns(path, columns, client, label, features)
  if not features or not len(table):
    found = 'no rows' if features else f'no columns but {client!r} and {label!r}: no inputs'
    raise errors.DataError(f'{path} has {found}')
  for column in (client, label):
    _check_filled(path, column, table[column])
  with files.border(path, 'correct the file, or leave columns out'):
    prepared = preparation_lib.Preparation(preparation_lib.columns_of(table, features))
    x = preparation_lib.matrix(prepared.columns or (), table)  # Not rounded yet.
  return own_data.from_arrays(
    x,
    table[label].to_numpy(),
    table[client].astype(str).to_numpy(dtype=object),
    **{'source': path, 'preparation': prepared, **options},
  )


def _check_columns(
  where: str, columns: Sequence[str], client: str, label: str, features: Sequence[str]
) -> None:
  """Raises DataError if a column is missing, is there twice, or has two roles."""
  known = {*columns}
  if len(known) < len(columns):
    raise errors.DataError(f'{where} has two columns of one name: rename one of them')
  for column in (client, label, *features):
    if column not in known:
      raise errors.DataError(
        f'{where} has no column {column!r:.80}; it has: {", ".join(columns[:20])}'
      )
  if len({client, label, *features}) < 2 + len(features):
    raise errors.DataError('a column is named twice among client, label and features')


def _check_filled(where: str, name: str, values: 'pd.Series[Any]') -> None:
  """Raises DataError if a column has a missing value. The message names the first such row."""
  empty = np.flatnonzero(values.isna())
  if empty.size:
    raise errors.DataError(
      f'{where}: the column {name!r} is empty in row {empty[0]} (rows count from 0): fill it in or '
      'leave the row out'
    )


def _read_csv(path: str, client: str, separator: str) -> pd.DataFrame:
  # Among numbers, NA or None is a missing value; among texts it may be a category.
  reading: dict[str, Any] = dict(sep=separator, skipinitialspace=True, keep_default_na=False)
  reading['low_memory'] = False  # With it each part of a large file would have types of its own.
  header = pd.read_csv(path, header=None, nrows=1, dtype=str, **reading).iloc[0].str.strip()
  # A row that is longer than the header is an error: its cells would move to other columns.
  warnings.simplefilter('error', pd.errors.ParserWarning)
  reading |= dict(header=0, names=list(header), index_col=False, na_values=[''])  # Names differ.
  table = pd.read_csv(path, dtype={client: str}, **reading)
  for name in table.select_dtypes(object):
    column = table[name].map(lambda c: (c.strip() or np.nan) if isinstance(c, str) else c)
    is_missing = column.isna() | column.isin(_MISSING)
    numbers = pd.to_numeric(column.mask(is_missing), errors='coerce')
    is_number = numbers.notna().any() and (numbers.notna() | is_missing).all()
    table[name] = numbers if is_number and name != client else column
  return table


def _read_parquet(path: str) -> pd.DataFrame:
  import pyarrow.parquet as pq  # Slow to import and needed here only.

  with pq.ParquetFile(path) as file:
    # In this thread: an error in one of pyarrow's threads (a damaged page) ends the process.
    table = file.read(use_threads=False).to_pandas(ignore_metadata=True)
    saved = (file.schema_arrow.pandas_metadata or {}).get('index_columns', ())
  return table.drop(columns=[n for n in saved if isinstance(n, str)])
