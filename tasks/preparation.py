"""Prepares raw inputs for a model, and converts class numbers to labels.

The module needs only NumPy. An exported model includes it, to prepare inputs as in training.

    prepare = Preparation.load('preparation.json')
    labels = prepare.labels(model.predict(prepare(rows)))
"""

import contextlib
import dataclasses
import datetime
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_DATE = re.compile(r'\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?')


@dataclasses.dataclass(frozen=True)
class Column:
  """An input column of a table, which has numbers or texts.

  Attributes:
    name: The column's name.
    categories: The column's different texts; each becomes a 0/1 input. None if it has numbers.
    fill: What an empty cell is taken for, a number or a category. None if it is refused.
    ignores_unseen: Whether a text that is no category makes all inputs of the column 0, and is not
      refused.
    dates: For a column of dates: 'days' makes one input, the days since 2000-01-01; 'parts' makes
      five: year, month, day of the month, weekday (Monday is 0) and hour. None if it has none.
  """

  name: str
  categories: tuple[str, ...] | None = None
  fill: float | str | None = None
  ignores_unseen: bool = False
  dates: str | None = None


@dataclasses.dataclass(frozen=True)
class Preparation:
  """The preparation of raw inputs for a model.

  Attributes:
    columns: The columns that a table must have, in the order of the inputs; None for arrays.
    mean: A number, or one for each input, that is subtracted from the inputs, or None for 0.
    deviation: A number, or one for each input, by which the inputs are then divided, or None for 1.
    classes: The label of each class number; None if targets are numbers.
    shape: The shape of an input, to which rows are reshaped. None if they have it already.
    threshold: For a model with one output for two classes, or for each label: an output above it
      means the second class, or 1. It is 0.5 for probabilities, 0 for logits, and else None.
    is_numbers: Whether predictions are numbers, as in a regression, and not scores.
    targets: The names of what is predicted, in the order of the outputs; None without names.
    picture: Height, width and channels of a picture, for which the inputs must be pixels
      [n, height, width, channels]. None if inputs are no pictures.
    output: What the exported model predicts: 'logits', 'probabilities' or 'numbers'. None before
      the export.
  """

  columns: tuple[Column, ...] | None = None
  mean: float | tuple[float, ...] | None = None
  deviation: float | tuple[float, ...] | None = None
  classes: tuple[Any, ...] | None = None
  shape: tuple[int, ...] | None = None
  threshold: float | None = None
  is_numbers: bool = False
  targets: tuple[str, ...] | None = None
  picture: tuple[int, int, int] | None = None
  output: str | None = None

  def __call__(self, rows: Any) -> np.ndarray:
    """Converts raw inputs to the model's inputs.

    Args:
      rows: A table: column name -> n values (a mapping or a pandas DataFrame; further columns are
        ignored). Without `columns`, an array [n, ...].

    Returns:
      float32 [n, inputs]. Without `columns`, an array like the given one, float32 if it is
      standardised.

    Raises:
      ValueError: If a column is missing, a number is not finite, a category is unknown, the array
        cannot be divided into inputs of the `shape`, or pictures have another size.
    """
    x = np.asarray(rows) if self.columns is None else matrix(self.columns, rows)
    if self.picture is not None and x.shape[1:] != self.picture:
      height, width, channels = self.picture
      raise ValueError(
        f'pictures have shape {list(x.shape)}: give pixels [n, {height}, {width}, {channels}]'
      )
    if self.shape is not None:
      x = x.reshape(-1, *self.shape)
    x = standardised(x, self.mean, self.deviation)
    if self.columns is None:
      return x
    return x.astype(np.float32, copy=False)

  def labels(self, predictions: Any) -> np.ndarray:
    """Returns the labels of predicted scores [..., classes], or of class numbers [...].

    Two classes may have one score [..., 1], that of the second class; `threshold` decides. Scores
    of several labels [..., labels] become zeros and ones. If targets are numbers, as in a
    regression, predictions are returned unchanged.

    Raises:
      ValueError: If there is one score for two classes, or a label, and no threshold.
    """
    numbers = np.asarray(predictions)
    if self.is_numbers:
      return numbers
    are_labels = self.classes is None and len(self.targets or ()) > 1
    if numbers.dtype.kind == 'f' and (are_labels or numbers.shape[-1:] == (1,)):
      if self.threshold is None:
        raise ValueError(
          'there is one score for two classes or a label, and no threshold is recorded: set it, '
          'dataclasses.replace(prepare, threshold=0.5) for probabilities and 0.0 for scores'
        )
      numbers = (numbers > self.threshold).astype(int)
      if are_labels:
        return numbers
      numbers = numbers[..., 0]
    elif numbers.dtype.kind == 'f':
      numbers = numbers.argmax(-1)
    if self.classes is None:
      return numbers
    return np.asarray(self.classes)[numbers]

  def probabilities(self, predictions: Any) -> np.ndarray:
    """Returns the probabilities of the classes, in the order of `classes`.

    Args:
      predictions: What the exported model predicts, [..., classes], or [..., 1] for two classes.

    Returns:
      float [..., classes]. One score for two classes gives the probabilities of both.

    Raises:
      ValueError: If predictions are numbers, or `output` does not say what they are.
    """
    scores = np.asarray(predictions)
    is_single = scores.shape[-1:] == (1,)
    _check_output(self.output, self.is_numbers)
    are_labels = self.classes is None and len(self.targets or ()) > 1
    if self.output == 'logits' and self.classes is None and not are_labels:
      raise ValueError(
        'there are no classes, so that the meaning of the logits is not known: a sigmoid is for'
        ' several labels of an example, a softmax for one'
      )
    if self.output == 'logits':
      scores = _sigmoid(scores) if is_single or are_labels else _softmax(scores)
    if is_single and self.classes is not None:
      scores = np.concatenate([1 - scores, scores], -1)
    return scores

  def save(self, path: str) -> None:
    """Writes the object to a JSON file, which `Preparation.load` reads."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(dataclasses.asdict(self), file, indent=1)

  @staticmethod
  def load(path: str) -> Any:
    """Reads a `Preparation`, or a `TextPreparation`, from a file that its `save` wrote."""
    with open(path, encoding='utf-8') as file:
      values = json.load(file, object_hook=_with_tuples)
    if values.get('columns') is not None:
      values['columns'] = tuple(Column(**column) for column in values['columns'])
    if 'kind' in values:  # An export of texts has the other module in place of this one.
      from tff_adaptive_tasks import text_preparation

      return text_preparation.TextPreparation(**values)
    return Preparation(**values)


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
  return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _check_output(output: str | None, is_numbers: bool) -> None:
  """Raises ValueError if predictions are no scores, or nothing says which."""
  if is_numbers or output == 'numbers':
    raise ValueError('predictions are numbers, which have no probabilities: use them as they are')
  if output is None:
    raise ValueError(
      'it is not recorded what the model predicts: set it, dataclasses.replace(prepare,'
      " output='logits') or 'probabilities', or export the model again"
    )


def _sigmoid(scores: np.ndarray) -> np.ndarray:
  with np.errstate(over='ignore'):  # 1 / (1 + inf) is 0, as it should be.
    return 1 / (1 + np.exp(-scores))


def _softmax(scores: np.ndarray) -> np.ndarray:
  # The difference keeps the powers from overflowing and changes no quotient.
  powers = np.exp(scores - scores.max(-1, keepdims=True))
  return powers / powers.sum(-1, keepdims=True)


def standardised(x: np.ndarray, mean: Any, deviation: Any) -> np.ndarray:
  """Returns (x - mean) / deviation in float32. None leaves a part out; two leave x unchanged."""
  if mean is None and deviation is None:
    return x
  # Large integers, such as times, need float64 until the mean is subtracted.
  x = x.astype(np.promote_types(x.dtype, np.float32))
  if mean is not None:
    x = x - np.asarray(mean, x.dtype)
  if deviation is not None:
    x = x / np.asarray(deviation, x.dtype)
  return x.astype(np.float32, copy=False)


class RowError(ValueError):
  """Raised if a row of data cannot be used. `row` is its number, from 0."""

  def __init__(self, before: str, row: int, after: str):
    """Creates the error from the parts of its message before and after 'row N'."""
    super().__init__(f'{before}row {row}{after}')
    self._parts = (before, after)
    self.row = row

  def renumbered(self, rows: Any) -> 'RowError':
    """Returns the error for a table of which only some rows were used, `rows` [n] by number."""
    before, after = self._parts
    return type(self)(before, int(rows[self.row]), after)

  def __reduce__(self) -> Any:
    """Returns how the error is made again in another process."""
    before, after = self._parts
    return type(self), (before, self.row, after)


def refusal(name: str, values: np.ndarray, row: Any, fix: str) -> RowError:
  """Returns the error that refuses a cell of a column."""
  cell = values[row]
  if isinstance(cell, (np.str_, np.number)):  # Without the names of NumPy's types.
    cell = cell.item()
  before = f'the column {name!r} has {cell!r:.40} in '
  return RowError(before, int(row), f' (rows count from 0): {fix}')


def matrix(columns: Sequence[Column], table: Any) -> np.ndarray:
  """Returns a table's inputs, float64 [n, inputs]; see `Preparation.__call__`."""
  names = {_tidy(str(name)): name for name in table}
  # An exact name wins over one that is equal but for blanks.
  names.update({str(name): name for name in table})
  parts = []
  for column in columns:
    if column.name not in names:
      raise ValueError(f'there is no column {column.name!r}; the inputs need it')
    values = np.asarray(table[names[column.name]])
    convert = _numbers if column.categories is None else _codes
    if column.dates is not None:
      convert = _of_dates
    parts.append(convert(column, values))
  return np.concatenate(parts, 1)


def days(name: str, values: np.ndarray) -> np.ndarray:
  """Returns the days since 2000-01-01, float64 [n]; nan for gaps. Others raise ValueError."""
  moments = np.full(len(values), np.datetime64('NaT', 'us'))
  for row, value in enumerate(values):
    moments[row] = moment(value)
    if np.isnat(moments[row]) and not _is_gap(value):
      fix = 'give a date without time zone, as 2020-12-31 or 2020-12-31 23:59'
      raise refusal(name, values, row, fix)
  return (moments - np.datetime64('2000-01-01')) / np.timedelta64(1, 'D')


def moment(value: Any) -> np.datetime64:
  """Returns a date: datetime64, of `datetime`, or a text; NaT for others and with time zones."""
  if isinstance(value, str):
    is_date = _DATE.fullmatch(value) is not None
  else:
    is_date = isinstance(value, (datetime.date, np.datetime64))
  with contextlib.suppress(ValueError):  # Such as 2020-02-31.
    if is_date and getattr(value, 'tzinfo', None) is None:
      return np.datetime64(value, 'us')
  return np.datetime64('NaT', 'us')


def _of_dates(column: Column, values: np.ndarray) -> np.ndarray:
  """Returns float64 [n, 1] or [n, 5] of a column of dates, with its gaps filled."""
  numbers = _filled(column, values, days(column.name, values))
  if column.dates == 'days':
    return numbers[:, np.newaxis]
  dates = np.datetime64('2000-01-01') + np.floor(numbers).astype(int)
  months = dates.astype('datetime64[M]')
  year = months.astype('datetime64[Y]').astype(int) + 1970
  month = months.astype(int) % 12 + 1
  day = (dates - months).astype(int) + 1
  weekday = (dates.astype(int) + 3) % 7  # 1970-01-01 was a Thursday.
  return np.stack([year, month, day, weekday, numbers % 1 * 24], 1)


def _filled(column: Column, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
  """Returns numbers, float64 [n], with gaps filled. ValueError names a cell of `values` left."""
  if column.fill is not None:
    numbers = np.where(np.isnan(numbers), column.fill, numbers)
  with np.errstate(over='ignore'):  # An overflow gives inf, which is refused.
    is_known = np.isfinite(numbers.astype(np.float32))
  if not is_known.all():
    row = int(np.argmin(is_known))
    raise refusal(column.name, values, row, 'fill it in or leave the row out')
  return numbers


def _numbers(column: Column, values: np.ndarray) -> np.ndarray:
  """Returns float64 [n, 1] of a column of numbers, with its gaps filled."""
  cells = values
  if values.dtype.kind == 'O':
    cells = np.array([np.nan if _is_gap(value) else value for value in values], object)
  try:
    numbers = cells.astype(np.float64)
  except (TypeError, ValueError):
    raise ValueError(f'the column {column.name!r} has values that are no numbers') from None
  return _filled(column, values, numbers)[:, np.newaxis]


def _codes(column: Column, values: np.ndarray) -> np.ndarray:
  """Returns float32 [n, categories]: 1 for the category of a row."""
  categories = column.categories or ()
  positions = {text: i for i, text in enumerate(categories)}
  codes = np.array([_position(value, column.fill, positions) for value in values], int)
  is_known = codes >= 0
  if not is_known.all() and not column.ignores_unseen:
    fix = 'it must be a text that training has seen'
    raise refusal(column.name, values, int(np.argmin(is_known)), fix)
  part = np.zeros([len(codes), len(categories)], np.float32)
  part[np.flatnonzero(is_known), codes[is_known]] = 1
  return part


def _position(value: Any, fill: Any, positions: Mapping[str, int]) -> int:
  """Returns the number of a cell's category, or -1 if it is none."""
  if isinstance(value, str):
    if value in positions:
      return positions[value]
    tidy = _tidy(value)
    if tidy or fill is None:
      return positions.get(tidy, -1)
    value = None
  if fill is None or not _is_gap(value):
    return -1
  return positions.get(fill, -1)


def _is_gap(value: Any) -> bool:
  """Returns whether a cell is empty: None, nan, or what pandas takes for it."""
  return not isinstance(value, str) and str(value) in ('None', 'nan', 'NaT', '<NA>')


def _tidy(text: str) -> str:
  """Returns a text as the training table's are read: composed (NFC), without blanks around it."""
  return unicodedata.normalize('NFC', text).strip()
