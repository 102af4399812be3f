"""From raw inputs to what a model takes, and from class numbers back to labels.

It needs NumPy alone and nothing of this project: an exported model takes this file along, so that
whoever predicts with it prepares inputs as training did.

    prepare = Preparation.load('preparation.json')
    labels = prepare.labels(model.predict(prepare(rows)))
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Column:
  """A column of a table.

  Attributes:
    name: Its name.
    categories: Its texts, each an input of its own that is 0 or 1; None for a column of numbers.
  """

  name: str
  categories: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Preparation:
  """What is done to raw inputs before a model sees them.

  Attributes:
    columns: The columns that a table must have, in the order of the inputs; None for arrays.
    mean: Subtracted from the inputs, a number or one for each; None for nothing.
    deviation: Divides them after that; None for nothing.
    classes: The label of each class number; None where targets are numbers themselves.
    shape: Of an input; rows are brought into it. None: they have it.
    threshold: Of a model with one output for two classes: above it is the second, 0.5 of
      probabilities and 0 of logits; None where each class has an output.
    is_numbers: Whether predictions are numbers themselves, as of a regression, no scores.
  """

  columns: tuple[Column, ...] | None = None
  mean: float | tuple[float, ...] | None = None
  deviation: float | tuple[float, ...] | None = None
  classes: tuple[Any, ...] | None = None
  shape: tuple[int, ...] | None = None
  threshold: float | None = None
  is_numbers: bool = False

  def __call__(self, rows: Any) -> np.ndarray:
    """Raw inputs as the model takes them.

    Args:
      rows: A table: column name -> n values (a mapping or a pandas DataFrame; further columns do
        not matter); or, without `columns`, an array [n, ...].

    Returns:
      float32 [n, inputs]; without `columns`, an array like the one given, float32 where it is
      standardised.

    Raises:
      ValueError: If a column is missing, a number is not finite, a category unknown, or a row of
        another size than the `shape`.
    """
    x = np.asarray(rows) if self.columns is None else _matrix(self.columns, rows)
    if self.shape is not None:
      x = _shaped(x, self.shape)
    if self.mean is not None:
      x = x.astype(np.float32) - np.asarray(self.mean, np.float32)
    if self.deviation is not None:
      x = x.astype(np.float32) / np.asarray(self.deviation, np.float32)
    return x

  def labels(self, predictions: Any) -> np.ndarray:
    """The labels of predicted scores [..., classes], or of class numbers [...].

    Scores of two classes may be [..., 1]: of the second class, by `threshold`. Where targets are
    numbers, as in a regression, predictions are what they are and come back unchanged.

    Raises:
      ValueError: If scores have one number for two classes and there is no threshold.
    """
    numbers = np.asarray(predictions)
    if self.is_numbers:
      return numbers
    if numbers.dtype.kind == 'f' and numbers.shape[-1:] == (1,):
      if self.threshold is None:
        raise ValueError(
          'the scores have one number for two classes, and no threshold is recorded: set it, '
          'dataclasses.replace(prepare, threshold=0.5) for probabilities and 0.0 for scores'
        )
      numbers = (numbers[..., 0] > self.threshold).astype(int)
    elif numbers.dtype.kind == 'f':
      numbers = numbers.argmax(-1)
    return numbers if self.classes is None else np.asarray(self.classes)[numbers]

  def save(self, path: str) -> None:
    """Writes a JSON file."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(dataclasses.asdict(self), file, indent=1)

  @classmethod
  def load(cls, path: str) -> 'Preparation':
    """Reads what `save` wrote."""
    with open(path, encoding='utf-8') as file:
      values = json.load(file)
    if values['columns'] is not None:
      values['columns'] = tuple(
        Column(c['name'], c['categories'] and tuple(c['categories'])) for c in values['columns']
      )
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _shaped(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Rows in a shape; one that has it, without an axis of rows, is one row."""
  size = int(np.prod(shape))
  is_alone = [d for d in x.shape if d != 1] in ([d for d in shape if d != 1], [size])
  if not is_alone and (x.ndim == 0 or np.prod(x.shape[1:]) != size):
    raise ValueError(
      f'an input has the shape {shape}, {size} numbers; found an array {list(x.shape)}: give'
      ' [n, ...] with as many numbers in each row'
    )
  return x.reshape(-1, *shape)


def columns_of(table: Mapping[str, Any], names: Sequence[str]) -> tuple[Column, ...]:
  """The columns of a table that are inputs: those with texts have categories, in their order.

  Raises:
    ValueError: If a column holds neither numbers nor texts, misses values, or has numbers but for
      one cell in ten at most.
  """
  found = []
  for name in names:
    values = np.asarray(table[name])
    if values.dtype.kind in 'biuf':
      found.append(Column(name))
      continue
    if values.dtype.kind not in 'OU':
      raise ValueError(f'the column {name!r} has dtype {values.dtype}: give texts or numbers')
    texts = _texts(name, values)
    kinds = sorted(set(texts))
    others = [text for text in kinds if not is_number(text)]
    if 0 < 10 * len(others) <= len(kinds):  # Cells gone wrong, no categories.
      row = min(map(texts.index, others))
      raise ValueError(
        f'the column {name!r} has numbers but {texts[row]!r:.40} in row {row} (rows count from 0): '
        'correct it or leave the row out'
      )
    found.append(Column(name, tuple(kinds)))
  return tuple(found)


def is_number(text: str) -> bool:
  """Whether a text writes a finite number."""
  try:
    return bool(np.isfinite(float(text)))
  except ValueError:
    return False


def _matrix(columns: Sequence[Column], table: Any) -> np.ndarray:
  parts = []
  for column in columns:
    if column.name not in table:
      raise ValueError(f'there is no column {column.name!r}; the inputs need it')
    make = _numbers if column.categories is None else _indicators
    parts.append(make(column, np.asarray(table[column.name])))
  return np.concatenate(parts, 1)


def _numbers(column: Column, values: np.ndarray) -> np.ndarray:
  try:
    with np.errstate(over='ignore'):  # What overflows is not finite.
      numbers = values.astype(np.float32)
  except (TypeError, ValueError):
    raise ValueError(f'the column {column.name!r} has values that are no numbers') from None
  bad = np.flatnonzero(~np.isfinite(numbers))
  if bad.size:
    raise ValueError(
      f'the column {column.name!r} is {values[bad[0]]} in row {bad[0]} (rows count from 0): fill it'
      ' in or leave the row out'
    )
  return numbers[:, np.newaxis]


def _texts(name: str, values: np.ndarray) -> list[str]:
  for row, value in enumerate(values):
    if not isinstance(value, str):
      is_missing = value is None or str(value) in ('nan', 'NaT', '<NA>')
      kind = 'nothing' if is_missing else f'{value!r:.40}'
      raise ValueError(
        f'the column {name!r} has texts but {kind} in row {row} (rows count from 0): give texts or '
        'numbers in the whole column'
      )
  return list(map(str, values))


def _indicators(column: Column, values: np.ndarray) -> np.ndarray:
  numbers = {text: i for i, text in enumerate(column.categories or ())}
  texts = _texts(column.name, values)
  unknown = set(texts) - set(numbers)
  if unknown:
    row = min(map(texts.index, unknown))
    raise ValueError(
      f'the column {column.name!r} has the category {texts[row]!r:.40} in row {row} (rows count '
      'from 0), which training has not seen'
    )
  made = np.zeros([len(texts), len(numbers)], np.float32)
  made[np.arange(len(texts)), [numbers[text] for text in texts]] = 1
  return made
