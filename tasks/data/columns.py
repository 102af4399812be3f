"""Decides what the columns of a table are to a model: numbers, categories, or no inputs."""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks.data.tables import is_number
from tff_adaptive_tasks.preparation import Column, days, moment, refusal

MISSING = ('refuse', 'drop', 'mean', 'median', 'category')
UNSEEN = ('refuse', 'ignore')
DATES = ('refuse', 'days', 'parts')
_MOST_CATEGORIES = 1000  # In a column.
_FEW = 10  # So many different texts may be categories, whatever they look like.
_MANY = 20  # Of more different texts it is asked whether they repeat.
_WORDS = 8  # Texts of so many words or more are no names of categories.
_ROWS_OF_A_CATEGORY = 3  # Many texts are no categories if each has fewer rows in the mean.
# Names that pandas, Hugging Face's data sets and R give to the numbers of rows.
_NAMES_OF_ROWS = re.compile(r'Unnamed: \d+(_level_\d+)?(\.\d+)*|__index_level_\d+__|')
_NAMES_OF_IDS = re.compile(
  r'(.*[ _.-])?(?i:id|ids|nr|no|idx|index|uuid|guid|row|key)|.*[a-z](Id|ID)'
  r'|(?i:row_?names?|level_\d+)'
)
# A column of one of these names identifies rows only if it counts them; R calls its row names X.
_NAMES_OF_COUNTS = re.compile(r'X(\.\d+)?|#|(?i:obs|observation|record|case|sample|line|n|i)')
_NUMBER = re.compile(
  r"[<>≤≥~±+\-\u2212$€£¥]?\s*\d[\d\s.,'\u2019]*(?P<unit>%|‰|°?[A-Za-zµ][A-Za-zµ/²³]{0,5})?"
)
_HEXADECIMAL = re.compile('0[xX][0-9a-fA-F]+')
_DIGITS = re.compile(r'\d[\d.,]*')
# Times and durations, ratios, 12 years 3 months, 3e5/ul, and (1.5) for -1.5; # stands for digits.
_FORM = re.compile(
  r'#(:#){1,2}( ?[AaPp][Mm])?|#/#|#\s?[a-zµ]+\.? ?#\s?[a-zµ]+\.?|#e[+-]?#\S*|\(#\)|#'
)
_DATE = re.compile(
  r'\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})( .*)?'
)
_OF_DATES = (
  "these are dates: dates='days' makes numbers of days of them, dates='parts' year, month, day, "
  'weekday and hour; or leave the column out by features='
)
_OF_NUMBERS = (
  'these are numbers as texts: give numbers alone (12.3 for 12.3%, 1234 for 1 234, 12.5 for 12:30)'
)
_NAME_IT = 'if they are categories all the same, name the column by features='
_OTHER_DATES = (
  'these are dates, but not all exist and are written as 2020-12-31 or 2020-12-31 23:59: read the '
  'table by pandas, convert the column by pd.to_datetime(column, dayfirst=True), or without '
  'dayfirst, and give the table to from_frame'
)


def columns_of(
  table: Mapping[str, Any],
  names: Sequence[str],
  *,
  are_named: bool = True,
  missing: str = 'refuse',
  unseen: str = 'refuse',
  dates: str = 'refuse',
  is_training: np.ndarray | None = None,
) -> tuple[Column, ...]:
  """Returns a `Column` for each name; the categories of a column of texts are sorted.

  Args:
    table: Column name -> n values. Gaps are None or nan.
    names: The columns of inputs.
    are_named: Whether the user named these columns. Else many texts that hardly repeat are refused.
    missing: What is done about gaps; see `tasks.from_csv`. Here 'drop' is as 'refuse'.
    unseen: What is done about a text that is no category, 'refuse' or 'ignore'.
    dates: What becomes of columns of dates: 'refuse', or 'days' or 'parts' as in `Column`.
    is_training: bool [n], True for the rows of which the mean or median is; None for all.

  Raises:
    ValueError: If a column has cells that are neither numbers nor texts, or too many categories.
      Also if its texts are not names of categories: numbers with commas or units, dates, sentences,
      or numbers of which a few, up to 10 %, are not.
  """
  columns = []
  for name in names:
    values = np.asarray(table[name])
    if values.dtype.kind in 'biuf':
      fill = _typical(name, _training_part(values, is_training), missing)
      columns.append(Column(name, fill=fill))
      continue
    is_gap = np.asarray(pd.isna(values))
    if dates != 'refuse' and _has_dates(name, values, is_gap):
      if is_gap.any() and missing == 'category':
        raise ValueError(
          f"the column {name!r} has dates: missing='category' is for texts; take 'mean' or 'median'"
        )
      fill = _typical(name, _training_part(days(name, values), is_training), missing)
      columns.append(Column(name, fill=fill, dates=dates))
      continue
    is_gap &= missing not in ('refuse', 'drop')
    kinds = _categories(name, values, is_gap, are_named)
    category_of_gaps = None
    if is_gap.any():
      category_of_gaps = ''
      kinds = sorted({'', *kinds})
    columns.append(Column(name, tuple(kinds), category_of_gaps, unseen == 'ignore'))
  return tuple(columns)


def _training_part(values: np.ndarray, is_training: np.ndarray | None) -> np.ndarray:
  if is_training is None:
    return values
  return values[is_training]


def _has_dates(name: str, values: np.ndarray, is_gap: np.ndarray) -> bool:
  """Returns whether a column has dates; ValueError if they are written in another way."""
  if values.dtype.kind == 'M':
    return True
  cells = values[~is_gap]
  if not len(cells):
    return False
  if all(map(_is_date, cells)):
    return True
  if all(isinstance(cell, datetime.date) for cell in cells):
    fix = 'it has a time zone: give dates without one, column.dt.tz_localize(None)'
    raise refusal(name, values, int(np.argmin(is_gap)), fix)
  if all(isinstance(cell, str) for cell in cells) and _are_dates(set(cells)):
    row = next(row for row, cell in enumerate(values) if not is_gap[row] and not _is_date(cell))
    raise refusal(name, values, row, _OTHER_DATES)
  return False


def gaps(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
  """Returns bool [n], True for a missing value, for each of the columns that have one."""
  gaps_of = {}
  for name in names:
    is_gap = np.asarray(pd.isna(np.asarray(table[name])))
    if is_gap.any():
      gaps_of[name] = is_gap
  return gaps_of


def is_number_of_row(name: str) -> bool:
  """Returns whether a column is named as programs name the index of a saved table."""
  return bool(_NAMES_OF_ROWS.fullmatch(name))


def is_id(name: str, values: np.ndarray) -> bool:
  """Returns whether a column identifies rows: many values that differ, and are named or look so."""
  count = len(values)
  if values.dtype.kind in 'iuf':
    is_whole = np.isfinite(values).all() and np.array_equal(values, np.round(values))
    if count <= _FEW or not is_whole:
      return False
    counts_rows = values[0] in (0, 1) and np.array_equal(values, values[0] + np.arange(count))
    if counts_rows and _NAMES_OF_COUNTS.fullmatch(name):
      return True
    return _NAMES_OF_IDS.fullmatch(name) is not None and len(np.unique(values)) == count
  if values.dtype.kind != 'O' or not all(isinstance(value, str) for value in values):
    return False
  # A few missing or repeated ids do not make a column of ids another one.
  kinds = set(values)
  if len(kinds) <= _MANY or len(kinds) < 0.95 * count:
    return False
  if _are_dates(kinds) or _have_numbers(kinds) or _have_numbers_in_a_form(kinds):
    return False
  words = [text for text in kinds if not is_number(text)]
  if 0 < 10 * len(words) <= len(kinds):  # Numbers with mistakes.
    return False
  return not any(len(text.split()) > 1 for text in kinds)


def _typical(name: str, values: np.ndarray, missing: str) -> float | None:
  """Returns the number that replaces gaps, the mean or median; None if gaps are refused."""
  if missing not in ('mean', 'median'):
    return None
  numbers = values.astype(np.float64)
  numbers = numbers[~np.isnan(numbers)]
  if not numbers.size:
    raise ValueError(f'the column {name!r} has no number to take the {missing} of: leave it out')
  if missing == 'mean':
    return float(numbers.mean())
  return float(np.median(numbers))


def _categories(name: str, values: np.ndarray, is_gap: np.ndarray, is_named: bool) -> list[str]:
  """Returns the different texts of a column, sorted; ValueError if they are no categories."""
  if values.dtype.kind == 'm':
    fix = 'these are durations: give numbers, such as column.dt.total_seconds() / 86_400'
    raise refusal(name, values, 0, fix)
  if values.dtype.kind == 'M':
    raise refusal(name, values, 0, _OF_DATES)
  is_text = np.array([isinstance(value, str) for value in values]) | is_gap
  if not is_text.all():
    row = int(np.argmin(is_text))
    fix = 'give texts, or numbers alone'
    if isinstance(values[row], datetime.date):
      fix = _OF_DATES
    raise refusal(name, values, row, fix)
  texts = [str(value) for value in values[~is_gap]]
  kinds = sorted(set(texts))
  others = {text for text in kinds if not is_number(text)}
  # Of a column without others the first row is named.
  row = next((i for i, value in enumerate(values) if value in others), 0)
  # 1,5 and 1.234,5 are numbers if nothing but digits is left.
  digits = (text.replace(',', '').replace('.', '') for text in kinds)
  are_decimals = any(',' in text for text in others) and all(map(is_number, digits))
  if others and (are_decimals or 10 * len(others) <= len(kinds)):
    fix = 'others are numbers: correct it, with a decimal point, or leave the row out'
    raise refusal(name, values, row, fix)
  if len(kinds) > _FEW and _are_dates(kinds):
    raise refusal(name, values, row, _OF_DATES)
  if len(kinds) > _FEW and _have_numbers(kinds):
    raise refusal(name, values, row, f'{_OF_NUMBERS}, or leave the column out by features=')
  if not is_named and len(kinds) > _FEW and _have_numbers_in_a_form(kinds):
    raise refusal(name, values, row, f'{_OF_NUMBERS}; {_NAME_IT}')
  if len(kinds) > _MANY and _is_prose(texts, kinds):
    raise ValueError(
      f'the column {name!r} has {len(kinds):,} different texts in {len(texts):,} rows, and each '
      'would be an input: leave it out by features=, group the texts into categories, or make '
      'numbers of them by tf.keras.layers.TextVectorization and call from_arrays (the guide, "Your '
      'own data", has an example)'
    )
  if not is_named and len(kinds) > _MANY and len(texts) < _ROWS_OF_A_CATEGORY * len(kinds):
    raise ValueError(
      f'the column {name!r} has {len(kinds):,} different texts in {len(texts):,} rows, and each '
      f'would be an input: leave it out by features=, or group the texts; {_NAME_IT}'
    )
  if len(kinds) > _MOST_CATEGORIES:
    fix = f'each of {len(kinds):,} texts would be an input: leave the column out, or group them'
    raise ValueError(f'the column {name!r} has more than {_MOST_CATEGORIES:,} categories; {fix}')
  return kinds


def _is_prose(texts: Sequence[str], kinds: Sequence[str]) -> bool:
  """Returns whether texts of several words hardly repeat, or are as long as sentences."""
  lengths = np.array([len(text.split()) for text in kinds])
  hardly_repeat = 2 * len(kinds) > len(texts) and np.mean(lengths > 1) > 0.5
  return bool(hardly_repeat or lengths.mean() >= _WORDS)


def _is_date(value: Any) -> bool:
  return not np.isnat(moment(value))


def _are_dates(kinds: Any) -> bool:
  return all(_DATE.fullmatch(text) for text in kinds)


def _have_numbers(kinds: Any) -> bool:
  """Returns whether all texts are numbers, perhaps with signs, blanks or one of two units.

  Codes of digits alone, such as 01067, are no numbers.
  """
  matches = [_NUMBER.fullmatch(text.strip()) for text in kinds]
  if not all(matches):
    return False
  units = {match['unit'] for match in matches if match is not None and match['unit']}
  return len(units) <= 2 and not all(text.isdigit() for text in kinds)


def _have_numbers_in_a_form(kinds: Any) -> bool:
  """Returns whether all texts are numbers in one form, such as times, or hexadecimal.

  They may be codes, too: a room 3/101 looks like a ratio.
  """
  if all(map(_HEXADECIMAL.fullmatch, kinds)):
    return True
  forms = {_DIGITS.sub('#', text.strip()) for text in kinds}
  return len(forms) <= 2 and forms != {'#'} and all(map(_FORM.fullmatch, forms))
