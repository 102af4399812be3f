"""Tasks on a user's own files: tables with columns of clients and labels, or .npz arrays."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import errors, own_data, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import files

# What pandas takes for a missing value in a column of numbers.
_MISSING = ('NA', 'N/A', 'n/a', '#N/A', '#NA', '<NA>', 'NaN', 'nan', 'NULL', 'null', 'None')
_MOST_COLUMNS = 50_000
_PACKED = ('.gz', '.bz2', '.xz', '.zip')  # Pandas unpacks; their checksums show damage.


def from_csv(
  path: str,
  client: str,
  label: str,
  *,
  features: Sequence[str] | None = None,
  separator: str = ',',
  **options: Any,
) -> task_lib.Task:
  """A task on a CSV file with a header.

  Args:
    path: The file; it may be packed (.gz, .bz2, .xz, .zip).
    client: The column that says whose a row is; read as texts.
    label: The column to predict: texts and whole numbers are classes, decimals are numbers.
    features: The columns to predict from; by default all others. A column of texts becomes one
      input for each of its categories.
    separator: What is between the cells; blanks around names and texts do not count.
    **options: As `from_arrays` takes them: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold.

  Returns:
    The task; its `preparation` makes the model's inputs of such a table, its rows without label
    and client included.

  Raises:
    DataError: If the file cannot be read, a column is missing, a cell empty or no number where the
      others are, or `from_arrays` refuses.
  """
  path = files.existing(path)
  with files.border(path):
    table = _read_csv(path, client, separator)
  return from_frame(table, path, client, label, features, options)


def from_parquet(
  path: str, client: str, label: str, *, features: Sequence[str] | None = None, **options: Any
) -> task_lib.Task:
  """A task on a Parquet file; arguments, returns and errors as `from_csv`.

  The index of a data frame that was saved is no column: save `table.reset_index()`.
  """
  path = files.existing(path)
  with files.border(path):
    table = _read_parquet(path)
  return from_frame(table, path, client, label, features, options)


def from_npz(
  path: str, client: str = 'client', label: str = 'y', *, features: str = 'x', **options: Any
) -> task_lib.Task:
  """A task on arrays in an .npz file; options, returns and errors as `from_arrays`.

  Args:
    path: The file.
    client: The name of the array [n] of client ids.
    label: The name of the array [n, ...] of targets.
    features: The name of the array [n, ...] of inputs.
    **options: As `from_arrays` takes them.
  """
  path = files.existing(path)
  arrays = files.read_npz(path, [features, label, client])
  return own_data.from_arrays(
    arrays[features], arrays[label], arrays[client], **{'source': path, **options}
  )


def from_frame(
  table: pd.DataFrame,
  path: str,
  client: str,
  label: str,
  features: Sequence[str] | None,
  options: dict[str, Any],
) -> task_lib.Task:
  """A task on a table from somewhere; other arguments, returns and errors as `from_csv`."""
  columns = list(map(str, table.columns))
  if features is None:
    features = [c for c in columns if c not in (client, label)]
  elif isinstance(features, str):
    features = [features]
  check_columns(path, columns, client, label, features)
  if not features or not len(table):
    found = 'no rows' if features else f'no columns but {client!r} and {label!r}: no inputs'
    raise errors.DataError(f'{path} has {found}')
  for column in (client, label):
    check_filled(path, column, table[column])
  for column in (label, *features):
    if table[column].dtype.kind == 'O':
      _check_decimals(path, column, table[column])
  try:
    prepared = preparation_lib.Preparation(preparation_lib.columns_of(table, features))
    inputs = sum(1 if c.categories is None else len(c.categories) for c in prepared.columns or ())
    # Each part, their concatenation, and what is split of it.
    files.check_memory(12 * inputs * len(table), f'its columns make {inputs:,} inputs of each row')
    x = prepared(table)
  except ValueError as error:
    raise errors.DataError(f'{path}: {error}') from None
  return own_data.from_arrays(
    x,
    table[label].to_numpy(),
    table[client].astype(str).to_numpy(dtype=object),
    **{'source': path, 'preparation': prepared, **options},
  )


def check_columns(
  where: str, columns: Sequence[str], client: str, label: str, features: Sequence[str]
) -> None:
  """DataError if a column is missing, or one would be two things at once."""
  known, named = {*columns}, set[str]()  # There may be thousands.
  for column in (client, label, *features):
    if column not in known:
      raise errors.DataError(
        f'{where} has no column {column!r:.80}; it has: {", ".join(columns[:20])}'
      )
    if column in named:
      raise errors.DataError(f'{column!r:.80} is named twice among client, label and features')
    named.add(column)


def check_filled(where: str, name: str, values: 'pd.Series[Any]') -> None:
  """DataError if a column has a missing value, with its row."""
  empty = np.flatnonzero(values.isna())
  if empty.size:
    raise errors.DataError(
      f'{where}: the column {name!r} is empty in row {empty[0]} (rows count from 0): fill it in or '
      'leave the row out'
    )


def _read_csv(path: str, client: str, separator: str) -> pd.DataFrame:
  if not path.lower().endswith(_PACKED) and not np.memmap(path, np.uint8, 'r').all():
    raise ValueError('a byte is zero: the file is damaged, or no UTF-8 text')
  # A text such as NA or None is one: a country's code, a category.
  reading: dict[str, Any] = dict(sep=separator, skipinitialspace=True)
  reading |= dict(keep_default_na=False, na_values=[''])
  # Pandas would give the second of two columns with one name another one.
  header = pd.read_csv(path, header=None, nrows=1, dtype=str, **reading).iloc[0].dropna()
  _check_header([name.strip() for name in header])
  as_texts = {name: str for name in header if name.strip() == client}
  # A row that is longer than the header is an error: its cells would move to other columns.
  warnings.simplefilter('error', pd.errors.ParserWarning)
  table = pd.read_csv(path, dtype=as_texts, index_col=False, **reading).rename(columns=str.strip)
  for name in table.select_dtypes(object):
    column = table[name].map(lambda c: (c.strip() or np.nan) if isinstance(c, str) else c)
    missing = column.isin(_MISSING)
    numbers = pd.to_numeric(column.mask(missing), errors='coerce')
    is_number = numbers.notna().any() and (numbers.notna() | missing | column.isna()).all()
    table[name] = numbers if missing.any() and is_number and name != client else column
  return table


def _read_parquet(path: str) -> pd.DataFrame:
  import pyarrow.parquet as pq  # Slow to import and needed here only.

  with pq.ParquetFile(path) as file:
    _check_header(file.schema_arrow.names)
    # In this thread: what a damaged page raises in one of its own ends the process.
    table = file.read(use_threads=False).to_pandas(ignore_metadata=True)
    saved = (file.schema_arrow.pandas_metadata or {}).get('index_columns', ())
  return table.drop(columns=[n for n in saved if isinstance(n, str)])


def _check_header(names: Sequence[Any]) -> None:
  """ValueError if there are columns that take minutes to read, or two of one name."""
  if len(names) > _MOST_COLUMNS:
    raise ValueError(f'it has {len(names):,} columns; there may be {_MOST_COLUMNS:,}')
  index = pd.Index(names)
  if index.has_duplicates:
    raise ValueError(f'it has two columns {index[index.duplicated()][0]!r:.80}: rename one of them')


def _check_decimals(path: str, name: str, column: 'pd.Series[Any]') -> None:
  """DataError if texts are numbers with decimal commas: they would become categories."""
  texts = {value for value in column if isinstance(value, str)}
  commas = sorted(text for text in texts if ',' in text)
  digits = (text.replace(',', '').replace('.', '') for text in texts)
  if commas and all(map(preparation_lib.is_number, digits)):
    raise errors.DataError(
      f'{path}: the column {name!r} has numbers with commas such as {commas[0]!r:.40}, which would'
      ' become categories: write decimal points, or texts that are no numbers'
    )
