"""Reads tables from files, and makes their texts and gaps alike whatever they came from.

Texts are in Unicode's composed form (NFC): two names that look alike are one. A gap in a column of
numbers is nan.
"""

import re
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

# In a column of numbers these texts mean a missing value, as in pandas.
_MISSING = ('NA', 'N/A', 'n/a', '#N/A', '#NA', '<NA>', 'NaN', 'nan', 'NULL', 'null', 'None')
_LINE_END = re.compile('\r\n|\r|\n')


def composed(text: str) -> str:
  """Returns a text in Unicode's composed form, in which equal names are equal texts."""
  return unicodedata.normalize('NFC', text)


def read_csv(path: str, client: str, separator: str) -> pd.DataFrame:
  """Reads a CSV file, with blanks around names and texts removed.

  Columns without a name are called as pandas calls them, 'Unnamed: 0', by their place. The cells of
  `client` are texts.

  Raises:
    ValueError: If the text is no table, or a quotation mark joins rows; pandas raises others.
  """
  # Among numbers, NA or None is a missing value; among texts it may be a category.
  reading: dict[str, Any] = dict(sep=separator, skipinitialspace=True, keep_default_na=False)
  reading['low_memory'] = False  # With it each part of a large file would have types of its own.
  first = pd.read_csv(path, header=None, nrows=1, dtype=str, **reading).iloc[0]
  # A row that is longer than the header is an error: its cells would move to other columns.
  warnings.simplefilter('error', pd.errors.ParserWarning)
  reading |= dict(header=0, names=_names(first), index_col=False, na_values=[''])
  # Client ids such as 007 must stay texts.
  table = pd.read_csv(path, dtype={client: str}, **reading)
  _check_quotation_marks(table, client, separator)
  for name in table:
    if not _has_numbers(table[name]):
      table[name] = _stripped(table[name], name == client)
  return table


def read_parquet(path: str) -> pd.DataFrame:
  """Reads a Parquet file without the index that pandas saved in it."""
  import pyarrow.parquet as pq  # Slow to import and needed here only.

  with pq.ParquetFile(path) as file:
    # In this thread: an error in one of pyarrow's threads (a damaged page) ends the process.
    table = file.read(use_threads=False).to_pandas(ignore_metadata=True)
    saved = (file.schema_arrow.pandas_metadata or {}).get('index_columns', ())
  return table.drop(columns=[n for n in saved if isinstance(n, str)])


def plain(values: 'pd.Series[Any]') -> np.ndarray:
  """Returns a column as an array of NumPy: numbers, in which gaps are nan, or else objects.

  Texts are composed. Columns of dates keep their dtype.
  """
  dtype: Any = values.dtype
  if isinstance(dtype, pd.SparseDtype):
    values = values.sparse.to_dense()
    dtype = values.dtype
  if _has_numbers(values):
    if values.isna().any():
      return values.to_numpy(np.float64, na_value=np.nan)
    return values.to_numpy(getattr(dtype, 'numpy_dtype', dtype))
  array = values.to_numpy()
  if array.dtype.kind != 'O':
    return array
  # pandas has several kinds of gaps; from here on there is one.
  is_gap = values.isna().to_numpy()
  rest = array[~is_gap]
  if is_gap.any() and rest.size and all(isinstance(v, (bool, np.bool_)) for v in rest):
    numbers = np.full(len(array), np.nan)
    numbers[~is_gap] = rest.astype(np.float64)
    return numbers
  result = np.empty(len(array), object)
  for i, value in enumerate(array):
    if isinstance(value, str):
      value = composed(value)
    result[i] = value
  result[is_gap] = None
  return result


def is_number(text: str) -> bool:
  """Returns whether a text is a finite number."""
  try:
    return '_' not in text and bool(np.isfinite(float(text)))
  except ValueError:
    return False


def _has_numbers(values: 'pd.Series[Any]') -> bool:
  return pd.api.types.is_bool_dtype(values.dtype) or pd.api.types.is_numeric_dtype(values.dtype)


def _names(header: 'pd.Series[Any]') -> list[str]:
  """Returns the names of columns, of which those without one differ from all others."""
  names = [composed(str(name).strip()) for name in header.fillna('')]
  for place, name in enumerate(names):
    if name:
      continue
    new = f'Unnamed: {place}'
    while new in names:  # A table that was saved twice with its index.
      new += '.1'
    names[place] = new
  return names


def _stripped(column: 'pd.Series[Any]', is_client: bool) -> 'pd.Series[Any]':
  """Returns a column of texts without blanks around them; of numbers, if all others are missing."""
  column = column.map(_stripped_cell)
  if is_client:
    return column
  is_missing = column.isna() | column.isin(_MISSING)
  numbers = pd.to_numeric(column.mask(is_missing), errors='coerce')
  is_number = numbers.notna().any() and (numbers.notna() | is_missing).all()
  if is_number:
    return numbers
  return column


def _stripped_cell(cell: Any) -> Any:
  if not isinstance(cell, str):
    return cell
  return cell.strip() or np.nan


def _check_quotation_marks(table: pd.DataFrame, client: str, separator: str) -> None:
  """Raises ValueError if a cell has rows of the table in it.

  A quotation mark at the beginning of a cell joins everything up to the next one to one text.
  """
  if client not in table:
    return
  columns = list(table.columns)
  place_of_client = columns.index(client)
  known: list[set[str] | None] = []
  for place, name in enumerate(columns):
    if _has_numbers(table[name]):
      continue
    for row, cell in enumerate(table[name]):
      if not isinstance(cell, str) or not _LINE_END.search(cell):
        continue
      known = known or [_known(table[name]) for name in columns]
      pieces = _cells_of_rows(cell, place, len(columns), separator)
      clients = known[place_of_client] or ()
      if any(row_of.get(place_of_client) in clients for row_of in pieces) or _are_rows(
        pieces, place, known
      ):
        raise ValueError(
          f'the column {name!r} has in row {row} (rows count from 0) a text of {len(pieces)} lines'
          ' that are rows of the table: a quotation mark (") begins it; remove that one and the one'
          ' that ends it'
        )


def _known(column: 'pd.Series[Any]') -> set[str] | None:
  """Returns the texts in a column; None for a column of numbers, in which any number may be."""
  if _has_numbers(column) and not pd.api.types.is_bool_dtype(column.dtype):
    return None
  return {str(cell).strip() for cell in column}


def _are_rows(pieces: list[dict[int, str]], place: int, known: list[set[str] | None]) -> bool:
  """Returns whether pieces of a text look like rows, whatever clients they name.

  Two cells or more, and at least half of them, are what is in their columns: numbers, or texts that
  other rows have. The column of the text itself, at `place`, does not count. The last line goes at
  least up to that column, where the quotation mark ends the text.
  """
  if not pieces or len(pieces[-1]) <= place:
    return False
  fits = []
  for row_of in pieces:
    for column, cell in row_of.items():
      texts = known[column]
      if column == place or not cell:
        continue
      if texts is None:
        fits.append(cell in _MISSING or is_number(cell))
      else:
        fits.append(cell in texts)
  return sum(fits) >= 2 and 2 * sum(fits) >= len(fits)


def _cells_of_rows(text: str, place: int, width: int, separator: str) -> list[dict[int, str]]:
  """Returns the cells of the rows that a text has in it: place of the column -> cell.

  Args:
    text: A cell of several lines.
    place: The place of its column, from 0.
    width: The number of columns.
    separator: The separator of cells.

  Returns:
    Cells by line of the text; a few lines of another width are left out. Nothing if its lines
    cannot be rows of such a table.
  """
  first, *lines, last = (line.split(separator) for line in _LINE_END.split(text))
  lines = [line for line in lines if line != ['']]
  whole = [line for line in lines if len(line) == width]
  if place + len(first) != width or 2 * len(whole) < len(lines) or len(last) > width:
    return []
  # The first line goes on in the column of the text, the others begin a row.
  rows = [enumerate(first, place), *map(enumerate, whole), enumerate(last)]
  return [_bare(row) for row in rows]


def _bare(cells: Iterable[tuple[int, str]]) -> dict[int, str]:
  """Returns cells by their places without blanks and quotation marks around them."""
  return {place: cell.strip(' "') for place, cell in cells}
