"""Tasks on a user's own files: tables with columns of clients and labels, or .npz arrays."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks import errors, own_data
from tasks import preparation as preparation_lib
from tasks import task as task_lib
from tasks.data import npz

if TYPE_CHECKING:
  import pandas as pd


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
    path: The file.
    client: The column that says whose a row is; read as texts.
    label: The column to predict: texts and whole numbers are classes, decimals are numbers.
    features: The columns to predict from; by default all others. A column of texts becomes one
      input for each of its categories.
    separator: What is between the cells.
    **options: As `from_arrays` takes them: model, validation, validation_by, standardise, seed,
      name, loss, metrics.

  Returns:
    The task; its `preparation` makes the model's inputs of such a table, its rows without label
    and client included.

  Raises:
    DataError: If the file cannot be read, a column is missing, a cell empty or no number where the
      others are, or `from_arrays` refuses.
  """

  def read(path: str) -> Any:
    import pandas as pd  # Slow to import and needed here only.

    return pd.read_csv(path, sep=separator, dtype={client: str}, skipinitialspace=True)

  return _from_table(path, read, client, label, features, options)


def from_parquet(
  path: str, client: str, label: str, *, features: Sequence[str] | None = None, **options: Any
) -> task_lib.Task:
  """A task on a Parquet file; arguments, returns and errors as `from_csv`."""

  def read(path: str) -> Any:
    import pandas as pd

    return pd.read_parquet(path)

  return _from_table(path, read, client, label, features, options)


def from_npz(
  path: str, client: str = 'client', label: str = 'y', *, features: str = 'x', **options: Any
) -> task_lib.Task:
  """A task on arrays in an .npz file.

  Args:
    path: The file.
    client: The name of the array [n] of client ids.
    label: The name of the array [n, ...] of targets.
    features: The name of the array [n, ...] of inputs.
    **options: As `from_arrays` takes them.

  Returns:
    The task.

  Raises:
    DataError: If the file is damaged, an array is missing, or `from_arrays` refuses.
  """
  path = _file(path)
  arrays = npz.read(path, [features, label, client])
  return own_data.from_arrays(
    arrays[features], arrays[label], arrays[client], **{'source': path, **options}
  )


def _from_table(
  path: str,
  read: Callable[[str], Any],
  client: str,
  label: str,
  features: Sequence[str] | None,
  options: dict[str, Any],
) -> task_lib.Task:
  path = _file(path)
  try:
    table = read(path)
  except Exception as error:  # Parsers raise a dozen unrelated classes.
    raise errors.DataError(f'{path} cannot be read: {" ".join(str(error).split())}') from None
  return from_frame(table, path, client, label, features, options)


def from_frame(
  table: 'pd.DataFrame',
  path: str,
  client: str,
  label: str,
  features: Sequence[str] | None,
  options: dict[str, Any],
) -> task_lib.Task:
  """A task on a table in memory; arguments, returns and errors as `from_csv`.

  Args:
    table: The table.
    path: Where it is from, for messages and the run's record.
    client: The column that says whose a row is.
    label: The column to predict.
    features: The columns to predict from; by default all others.
    options: As `from_arrays` takes them.
  """
  columns = list(map(str, table.columns))
  if features is None:
    features = [c for c in columns if c not in (client, label)]
  for column in (client, label, *features):
    if column not in columns:
      raise errors.DataError(f'{path} has no column {column!r}; it has: {", ".join(columns)}')
  if not features:
    raise errors.DataError(f'{path} has no columns but {client!r} and {label!r}: no inputs')
  if not len(table):
    raise errors.DataError(f'{path} has no rows')
  for column in (client, label):
    empty = np.flatnonzero(table[column].isna())
    if empty.size:
      raise errors.DataError(
        f'{path}: the column {column!r} is empty in row {empty[0]} (rows count from 0): fill it in '
        'or leave the row out'
      )
  try:
    prepared = preparation_lib.Preparation(preparation_lib.columns_of(table, features))
    x = prepared(table)
  except ValueError as error:
    raise errors.DataError(f'{path}: {error}') from None
  return own_data.from_arrays(
    x,
    table[label].to_numpy(),
    table[client].astype(str).to_numpy(dtype=object),
    **{'source': path, 'preparation': prepared, **options},
  )


def _file(path: str) -> str:
  path = os.path.expanduser(path)
  if not os.path.isfile(path):
    raise errors.DataError(f'there is no file {path}; a relative path is one from {os.getcwd()}')
  return path
