"""Tasks on a user's own files: tables with columns of clients and labels, or .npz arrays."""

import mmap
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive._utils import memory
from tff_adaptive.runs import capacity
from tff_adaptive_tasks import errors, own_data, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import npz

if TYPE_CHECKING:
  import pandas as pd

# What pandas takes for a missing value in a column of numbers.
_MISSING = ('NA', 'N/A', 'n/a', '#N/A', '#NA', '<NA>', 'NaN', 'nan', 'NULL', 'null', 'None')
_NUMBER = re.compile(r'\s*[+-]?(\d+|[\d.]*(,\d+)+)([eE][+-]?\d+)?\s*')


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
    separator: What is between the cells; blanks around names and texts do not count.
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

    _check_bytes(path)
    # A text such as NA or None is one: a country's code, a category.
    reading = {
      'sep': separator,
      'skipinitialspace': True,
      'keep_default_na': False,
      'na_values': [''],
    }
    # Pandas would give the second of two columns with one name another one.
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, **reading).iloc[0].dropna()
    _check_names(name.strip() for name in header)
    as_texts = {name: str for name in header if name.strip() == client}
    with warnings.catch_warnings():
      warnings.simplefilter('error', pd.errors.ParserWarning)
      warnings.simplefilter('ignore', pd.errors.DtypeWarning)  # Of a long column with NA in it.
      try:  # Without index_col=False the first cell of longer rows would be taken for a name.
        table = pd.read_csv(path, dtype=as_texts, index_col=False, **reading)
      except pd.errors.ParserWarning:
        raise ValueError('rows have more cells than the header has names') from None
    table = table.rename(columns=str.strip)
    for name in table:
      if table[name].dtype != object:
        continue
      table[name] = table[name].map(_stripped)
      if name != client:
        table[name] = _numbers_but_missing(table[name])
    return table

  return _from_table(path, read, client, label, features, options)


def from_parquet(
  path: str, client: str, label: str, *, features: Sequence[str] | None = None, **options: Any
) -> task_lib.Task:
  """A task on a Parquet file; arguments, returns and errors as `from_csv`.

  A named index of the data frame that was saved is a column where it is asked for: it can be the
  client, say. It is none of the features unless it is named as one.
  """

  def read(path: str) -> Any:
    import pandas as pd
    import pyarrow.parquet as pq

    declared = pq.read_metadata(path)
    _check_names(declared.schema.to_arrow_schema().names)
    groups = [declared.row_group(i) for i in range(declared.num_row_groups)]
    cells = sum(g.column(i).num_values for g in groups for i in range(g.num_columns))
    _check_memory(
      8 * cells + sum(g.total_byte_size for g in groups), f'it declares {cells:,} cells'
    )
    table = pd.read_parquet(path)
    asked = {client, label, *([features] if isinstance(features, str) else features or ())}
    return table.reset_index(level=[name for name in table.index.names if name in asked])

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
    TypeError: If the arrays of `from_arrays` are given instead of their names.
  """
  if given := [name for name in ('x', 'y', 'clients') if name in options]:
    raise TypeError(
      f"from_npz takes no {given[0]}=; the file's arrays are named by features=, label= and client="
    )
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
  elif isinstance(features, str):
    features = [features]
  check_columns(path, columns, client, label, features)
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
  for row, value in enumerate(table[client]):
    if isinstance(value, (list, tuple, dict, set, np.ndarray)):
      raise errors.DataError(
        f'{path}: the client in row {row} (rows count from 0) is {value!r:.40}: give a text or a '
        'whole number'
      )
  table = _plain(table)
  for column in (label, *features):
    _check_decimals(path, column, table[column])
  try:
    prepared = preparation_lib.Preparation(preparation_lib.columns_of(table, features))
    inputs = sum(1 if c.categories is None else len(c.categories) for c in prepared.columns or ())
    # Each part, their concatenation, and what is split of it.
    _check_memory(12 * inputs * len(table), f'its columns make {inputs:,} inputs of each row')
    x = prepared(table)
  except ValueError as error:
    raise errors.DataError(f'{path}: {error}') from None
  return own_data.from_arrays(
    x,
    table[label].to_numpy(),
    table[client].astype(str).to_numpy(dtype=object),
    **{'source': path, 'preparation': prepared, **options},
  )


def _stripped(cell: Any) -> Any:
  """A text without the blanks around it, a cell of nothing else as an empty one."""
  return (cell.strip() or np.nan) if isinstance(cell, str) else cell


def _numbers_but_missing(column: 'pd.Series[Any]') -> 'pd.Series[Any]':
  """A column of numbers where some cells say NA or the like: with NaN there; others as they are."""
  import pandas as pd

  missing = column.isin(_MISSING)
  if not missing.any():
    return column
  rest = column.mask(missing)
  numbers = pd.to_numeric(rest, errors='coerce')
  are_numbers = numbers.notna().any() and (numbers.notna() == rest.notna()).all()
  return numbers if are_numbers else column


def _check_decimals(path: str, name: str, column: 'pd.Series[Any]') -> None:
  """DataError if texts are numbers with decimal commas: they would become categories."""
  if column.dtype.kind != 'O':
    return
  texts = {value for value in column if isinstance(value, str)}
  commas = sorted(text for text in texts if ',' in text)
  if commas and all(_NUMBER.fullmatch(text) for text in texts):
    raise errors.DataError(
      f'{path}: the column {name!r} has numbers with commas such as {commas[0]!r:.40}, which would'
      ' become categories: write decimal points, or texts that are no numbers'
    )


def _plain(table: 'pd.DataFrame') -> 'pd.DataFrame':
  """The table with NumPy's numbers where it has pandas's own that may be missing."""
  import pandas as pd

  found = {}
  for name, dtype in table.dtypes.items():
    if pd.api.types.is_numeric_dtype(dtype) and not isinstance(dtype, np.dtype):
      is_whole = not table[name].isna().any()
      found[name] = table[name].to_numpy(
        dtype=dtype.numpy_dtype if is_whole else np.float64, na_value=np.nan
      )
  return table.assign(**found)


def check_columns(
  where: str, columns: Sequence[str], client: str, label: str, features: Sequence[str]
) -> None:
  """DataError if a column is missing, or one would be two things at once.

  Args:
    where: What has the columns, for the message.
    columns: Their names.
    client: The column of clients.
    label: The column to predict.
    features: The columns to predict from.
  """
  for column in (client, label, *features):
    if column not in columns:
      raise errors.DataError(f'{where} has no column {column!r:.80}; it has: {_listed(columns)}')
    if columns.count(column) > 1:
      raise errors.DataError(f'{where} has two columns {column!r:.80}: rename one of them')
  if client == label:
    raise errors.DataError(f'client and label are both {client!r}: give two columns')
  if label in features:
    raise errors.DataError(f'features have {label!r}, the column to predict: leave it out')
  if len(set(features)) < len(features):
    twice = next(f for f in features if list(features).count(f) > 1)
    raise errors.DataError(f'features have {twice!r} twice: leave one out')


def _listed(columns: Sequence[str]) -> str:
  shown = ', '.join(column[:40] for column in columns[:20])
  return shown if len(columns) <= 20 else f'{shown}, ... ({len(columns):,} in all)'


def _check_names(names: Any) -> None:
  """ValueError if two columns have one name."""
  seen: set[str] = set()
  for name in names:
    if name in seen:
      raise ValueError(f'it has two columns {name!r:.80}: rename one of them')
    seen.add(name)


def _check_bytes(path: str) -> None:
  """ValueError if a text has zero bytes, which a crash leaves and where cells would end."""
  packed = path.endswith(('.gz', '.bz2', '.zip', '.xz', '.zst', '.tar', '.tgz'))
  if packed or not os.path.getsize(path):
    return
  with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
    where = content.find(b'\0')
  if where >= 0:
    raise ValueError(f'byte {where:,} is zero: the file is damaged, or no UTF-8 text')


def _check_memory(needed: int, why: str) -> None:
  """ValueError if so many bytes are not available."""
  free = memory.available_memory()
  if needed > free:
    raise ValueError(
      f'{why}, which take {capacity.human(needed)} where {capacity.human(free)} of memory are '
      'available: leave out columns of names and dates, or rows'
    )


def _file(path: str) -> str:
  path = os.path.expanduser(path)
  if os.path.isdir(path):
    raise errors.DataError(f'{path} is a folder: name one file in it')
  if not os.path.isfile(path):
    raise errors.DataError(f'there is no file {path}; a relative path is one from {os.getcwd()}')
  return path
