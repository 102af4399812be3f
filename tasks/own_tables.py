"""Tasks from a user's own tables: files of CSV and Parquet, and data frames."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import errors, own_data, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import columns as columns_lib, files, tables


def from_csv(
  path: str,
  client: str,
  label: str | Sequence[str],
  *,
  features: Sequence[str] | None = None,
  separator: str = ',',
  missing: str = 'refuse',
  unseen: str = 'refuse',
  dates: str = 'refuse',
  **options: Any,
) -> task_lib.Task:
  """Builds a task from a CSV file with a header.

  Args:
    path: The file, which may be compressed (.gz, .bz2, .xz, .zip).
    client: The column with the rows' client ids, which are read as strings.
    label: The column to predict. Strings and integers are classes; decimals stay numbers; see
      `kind` of `from_arrays`. A list of columns has several targets: labels if all are 0 or 1, else
      numbers.
    features: The columns to predict from; by default all other columns except those that number or
      identify the rows. A column of strings becomes one input for each of its categories.
    separator: The separator of cells. Blanks around names and strings are ignored.
    missing: What is done about empty cells. 'refuse' names all columns that have one; 'drop' leaves
      such rows out; 'mean' and 'median' take that of the column's training rows, and among texts a
      category of its own; 'category' is for columns of texts alone.
    unseen: What the preparation does about a text that is no category: 'refuse', or 'ignore', which
      makes all inputs of the column 0.
    dates: What becomes of columns of dates, such as 2020-12-31 or 2020-12-31 23:59. 'days' makes
      one input, the days since 2000-01-01. 'parts' makes five: year, month, day of the month,
      weekday (Monday is 0) and hour. 'refuse' takes up to ten different dates for categories.
    **options: Arguments of `from_arrays`: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold, kind, metric, class_weight, positive.

  Returns:
    The task. Its `preparation` makes the model's inputs from such a table, in which the columns of
    labels and clients may be missing.

  Raises:
    DataError: If the file cannot be read, a column is missing, a cell is empty or not a number in a
      column of numbers, texts are no categories (dates, sentences, numbers with units), or
      `from_arrays` raises it.
  """
  path = files.existing(path)
  _check_text('separator', separator)
  composed_client = ''
  if isinstance(client, str):  # `from_frame` refuses others.
    composed_client = tables.composed(client)
  with files.border(path):
    try:
      table = tables.read_csv(path, composed_client, separator)
    except UnicodeDecodeError:
      raise errors.DataError(
        f'{path} is no text in UTF-8: save it as UTF-8, or read it by pandas with its encoding and'
        ' call from_frame'
      ) from None
  return from_frame(
    table,
    client,
    label,
    features=features,
    missing=missing,
    unseen=unseen,
    dates=dates,
    **{'source': path, **options},
  )


def from_parquet(
  path: str, client: str, label: str | Sequence[str], **options: Any
) -> task_lib.Task:
  """Builds a task from a Parquet file; for arguments, results and errors see `from_csv`.

  The index of a saved data frame is not a column: save `table.reset_index()`.
  """
  path = files.existing(path)
  with files.border(path):
    table = tables.read_parquet(path)
  return from_frame(table, client, label, **{'source': path, **options})


def from_frame(
  table: pd.DataFrame,
  client: str,
  label: str | Sequence[str],
  *,
  features: Sequence[str] | None = None,
  missing: str = 'refuse',
  unseen: str = 'refuse',
  dates: str = 'refuse',
  **options: Any,
) -> task_lib.Task:
  """Builds a task from a data frame of pandas; for arguments, results and errors see `from_csv`.

  The index is not a column: give `table.reset_index()`.
  """
  options = {'source': 'data frame', **options}
  source = options['source']
  # Before the table is looked at: a large one takes a while.
  _check_choices(missing, unseen, dates)
  names = [tables.composed(str(name)) for name in table.columns]
  check_columns(source, names, client, label, features)
  client = tables.composed(client)
  labels = [tables.composed(name) for name in _as_list(label)]
  cells = {name: tables.plain(table.iloc[:, i]) for i, name in enumerate(names)}
  used = _features(source, cells, client, labels, features)
  if not used:
    named = ', '.join(map(repr, (client, *labels)))
    raise errors.DataError(
      f'{source} has no inputs, only {named} and columns that number or identify rows: name those'
      ' that are inputs by features='
    )
  if not len(table):
    raise errors.DataError(f'{source} has no rows')
  # Gaps in columns that are not used do not matter.
  cells = {name: cells[name] for name in (client, *labels, *used)}
  cells, rows = _without_gaps(source, cells, client, labels, missing)
  # Client ids of a Parquet file may be numbers.
  owners = cells[client].astype(str).astype(object)
  is_training = None
  if missing in ('mean', 'median'):
    is_training = own_data.training_rows(owners, options)
  border = files.border(source, 'correct the table, or leave columns out')
  with border, _named(source), _numbered(rows):
    columns = columns_lib.columns_of(
      cells,
      used,
      are_named=features is not None,
      missing=missing,
      unseen=unseen,
      dates=dates,
      is_training=is_training,
    )
    x = preparation_lib.matrix(columns, cells)  # Not rounded yet.
  options = {'preparation': preparation_lib.Preparation(columns), 'targets': labels, **options}
  with _numbered(rows):
    return own_data.from_arrays(x, _targets(source, cells, labels), owners, **options)


@contextlib.contextmanager
def _named(source: str) -> Iterator[None]:
  """A context whose errors of one line on a column begin with the name of the table."""
  try:
    yield
  except ValueError as error:
    raise errors.DataError(f'{source}: {error}') from None


@contextlib.contextmanager
def _numbered(rows: np.ndarray) -> Iterator[None]:
  """A context whose errors name rows of the user's table, of which `rows` [n] are used."""
  try:
    yield
  except preparation_lib.RowError as error:
    raise error.renumbered(rows) from None


def _as_list(names: Any) -> list[Any]:
  if isinstance(names, str):
    return [names]
  return list(names)


def _targets(source: str, cells: dict[str, np.ndarray], labels: Sequence[str]) -> np.ndarray:
  """Returns the column of the label [n], or the columns of several labels [n, k]."""
  if len(labels) == 1:
    return cells[labels[0]]
  for name in labels:
    if cells[name].dtype.kind not in 'biuf':
      raise errors.DataError(
        f'{source}: the label {name!r} is no column of numbers: several labels must be 0 or 1, or '
        'numbers to predict'
      )
  return np.stack([cells[name] for name in labels], 1)


def check_columns(
  where: str, columns: Sequence[str], client: Any, label: Any, features: Any
) -> None:
  """Raises DataError if a column is missing, is there twice, or has two roles."""
  _check_text('client', client)
  if not isinstance(label, str) and not (_are_names(label) and len(label)):
    raise errors.DataError(
      f'label is {label!r:.80}; it must be a text, the name of a column, or a list of names'
    )
  if isinstance(features, str):
    features = [features]
  if features is not None and not _are_names(features):
    raise errors.DataError(
      f"features is {features!r:.80}; give the names of columns, such as ['age', 'dose']"
    )
  named = [client, *_as_list(label)]
  if features is not None:
    named += features
  named = [tables.composed(name) for name in named]
  # Two columns of one name, or one that is composed in another way, would be mixed up.
  known = {*columns}
  if len(known) < len(columns):
    raise errors.DataError(f'{where} has two columns of one name: rename one of them')
  for column in named:
    if column not in known:
      raise errors.DataError(
        f'{where} has no column {column!r:.80}; it has: {", ".join(columns[:20])}'
      )
  if len({*named}) < len(named):
    raise errors.DataError('a column is named twice among client, label and features')


def _are_names(names: Any) -> bool:
  is_list = isinstance(names, (Sequence, np.ndarray, pd.Index))
  return is_list and all(isinstance(name, str) for name in names)


def _check_text(name: str, value: Any) -> None:
  if not isinstance(value, str):
    raise errors.DataError(f'{name} is {value!r:.80}; it must be a text')


def _check_choices(missing: Any, unseen: Any, dates: Any) -> None:
  for name, value, allowed in (
    ('missing', missing, columns_lib.MISSING),
    ('unseen', unseen, columns_lib.UNSEEN),
    ('dates', dates, columns_lib.DATES),
  ):
    if value not in allowed:
      raise errors.DataError(f'{name} is {value!r:.80}; it must be one of: {", ".join(allowed)}')


def _features(
  source: str, cells: dict[str, np.ndarray], client: str, labels: Sequence[str], features: Any
) -> list[str]:
  """Returns the columns of inputs. Warns of those that only look as if they were inputs."""
  if isinstance(features, str):
    features = [features]
  if features is not None:
    return [tables.composed(name) for name in features]
  others = [name for name in cells if name != client and name not in labels]
  # The index of a saved table is left out without a word, ids with one.
  rows = [name for name in others if columns_lib.is_number_of_row(name)]
  ids = [n for n in others if n not in rows and columns_lib.is_id(n, cells[n])]
  if ids:
    warnings.warn(
      f'{source}: no inputs are the columns that identify rows, {", ".join(map(repr, ids))}: name '
      'them by features= if they are to be',
      stacklevel=1,
    )
  return [name for name in others if name not in rows and name not in ids]


def _without_gaps(
  source: str,
  cells: dict[str, np.ndarray],
  client: str,
  labels: Sequence[str],
  missing: str,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
  """Returns the columns, without the rows that have gaps if these are to be dropped.

  Also returns the numbers of the rows that are left.

  Raises DataError with all columns that have gaps which `missing` does not treat.
  """
  gaps_of = columns_lib.gaps(cells, list(cells))
  if missing == 'drop':
    is_whole = ~np.any([np.zeros(len(cells[client]), bool), *gaps_of.values()], 0)
    if not is_whole.any():
      raise errors.DataError(f'{source} has an empty cell in every row: leave columns out')
    if not is_whole.all():
      counts = [f'{name!r} {is_gap.sum():,}' for name, is_gap in gaps_of.items()]
      warnings.warn(
        f"{source}: missing='drop' leaves out {(~is_whole).sum():,} of {len(is_whole):,} rows;"
        f' empty cells by column: {", ".join(counts)}',
        stacklevel=1,
      )
    rest = {name: values[is_whole] for name, values in cells.items()}
    for name in (client, *labels):
      if name in gaps_of:
        rest[name] = _whole(rest[name])
    return rest, np.flatnonzero(is_whole)
  untreated = []
  for name, is_gap in gaps_of.items():
    is_text = cells[name].dtype.kind == 'O'
    is_treated = missing in ('mean', 'median') or (missing == 'category' and is_text)
    if is_treated and name != client and name not in labels:
      continue
    more = ''
    if is_gap.sum() > 1:
      more = f' and {is_gap.sum() - 1:,} more'
    untreated.append(f'{name!r} is empty in row {np.flatnonzero(is_gap)[0]}{more}')
  if untreated:
    raise errors.DataError(
      f'{source}: {"; ".join(untreated)} (rows count from 0): fill the cells in, leave rows or '
      "columns out, or give missing='drop', and for inputs 'mean', 'median' or, of texts, "
      "'category'"
    )
  return cells, np.arange(len(cells[client]))


def _whole(values: np.ndarray) -> np.ndarray:
  """Returns whole numbers as integers, which they were before pandas made room for nan."""
  if values.dtype.kind != 'f' or not np.isfinite(values).all():
    return values
  integers = values.astype(np.int64)
  if np.array_equal(integers, values):
    return integers
  return values
