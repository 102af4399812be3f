"""Decides what the targets of a user's own data are: classes, numbers or labels of 0 and 1."""

import dataclasses
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive_tasks import errors, task as task_lib

KINDS = ('classes', 'numbers')
ROWS = 'the data (rows count from 0)'
_MOST_CLASSES = 10_000
_MANY_CLASSES = 20  # Of more classes it is asked whether they repeat, or whether they are counts.


@dataclasses.dataclass(frozen=True)
class Targets:
  """The targets of all examples.

  Attributes:
    y: Class numbers, int32 [n]; numbers, float32 [n] or [n, k]; several labels of 0 and 1, float32
      [n, k]; or whole numbers as they were given, int32 [n, ...], for which a loss is needed.
    classes: The label of each class number; None if targets are no class numbers.
    has_labels: Whether they are several labels of 0 and 1 for each example.
    are_numbers: Whether numbers are predicted, as in a regression.
    names: What is predicted; None if it has no name.
  """

  y: np.ndarray
  classes: tuple[Any, ...] | None = None
  has_labels: bool = False
  are_numbers: bool = False
  names: tuple[str, ...] | None = None


def understood(y: np.ndarray, kind: str | None, names: Sequence[str] | None) -> Targets:
  """Returns what targets mean.

  Args:
    y: Array [n] or [n, ...].
    kind: 'classes' or 'numbers' if the user says so, or None.
    names: The names of the targets, by which columns of zeros and ones [n, k] are known to be
      several labels; or None.

  Raises:
    DataError: If no loss is known for such targets, or `kind` or `names` do not fit them.
  """
  if kind is not None and kind not in KINDS:
    raise errors.DataError(f"kind is {kind!r:.80}; it must be 'classes' or 'numbers'")
  names = _checked_names(y, names)
  if y.dtype.kind == 'O' and all(isinstance(value, str) for value in y.ravel()):
    y = y.astype(str)
  y = composed(y)
  if y.dtype.kind not in 'biufU':
    raise errors.DataError(
      f'labels have dtype {y.dtype}, for which there is no loss: give strings or integers for '
      'classes, or floating-point numbers to predict'
    )
  if y.dtype.kind == 'f':
    task_lib.check_finite({'the label': y}, ROWS)
  if names is not None and len(names) > 1:
    return _several(y, kind, names)
  if kind == 'classes' and y.dtype.kind == 'f':
    y = _whole(y)
  if kind == 'numbers' and y.dtype.kind == 'U':
    raise errors.DataError(
      f"the labels are texts, such as {str(y.flat[0])!r:.40}, which kind='numbers' cannot predict"
    )
  if y.dtype.kind == 'f' or kind == 'numbers':
    return Targets(_single(y, 'the label'), are_numbers=True, names=names)
  # With a loss of the user's these may be anything, such as classes of tokens.
  if y.ndim > 1:
    return Targets(_int32(y, 'the label'), names=names)
  classes = _classes(y, kind, names)
  # The classes are sorted, so that this is each label's number.
  codes = np.searchsorted(classes, y)
  return Targets(codes.astype(np.int32), tuple(classes.tolist()), names=names)


def numbered(y: np.ndarray, targets: Targets) -> np.ndarray:
  """Returns further labels in the form of `targets.y`. An unknown class raises DataError."""
  if targets.classes is None:
    return _further(y, targets)
  positions = {label: number for number, label in enumerate(targets.classes)}
  labels = composed(y).tolist()
  unknown = [label for label in labels if label not in positions]
  if unknown:
    raise errors.DataError(f'the y of validation has {unknown[0]!r}, a class that training has not')
  return np.asarray([positions[label] for label in labels], np.int32)


def _further(y: np.ndarray, targets: Targets) -> np.ndarray:
  """Returns further targets that are no classes. Raises DataError if training has no such ones."""
  what = 'the y of validation'
  if y.dtype.kind not in 'biuf':
    raise errors.DataError(f'{what} has dtype {y.dtype}; it must hold numbers, as in training')
  if targets.has_labels and not np.isin(y, (0, 1)).all():
    raise errors.DataError(f'{what} must be 0 or 1, as the labels of training')
  if targets.y.dtype.kind == 'f':
    return _single(y, what)
  return _int32(y, what)


def _single(y: np.ndarray, what: str) -> np.ndarray:
  """Returns finite numbers as float32, in which a large float64 would be infinite."""
  with np.errstate(over='ignore'):
    values = y.astype(np.float32)
  task_lib.check_finite({what: values}, ROWS)
  return values


def _int32(y: np.ndarray, what: str) -> np.ndarray:
  with np.errstate(invalid='ignore'):
    values = y.astype(np.int32)
  if not np.array_equal(values, y):
    raise errors.DataError(f'{what} must hold whole numbers within those of int32')
  return values


def composed(array: np.ndarray) -> np.ndarray:
  """Returns texts in Unicode's composed form (NFC), and other arrays unchanged."""
  if array.dtype.kind == 'O' and array.size and all(isinstance(v, str) for v in array.flat):
    array = array.astype(str)
  if array.dtype.kind != 'U' or not array.size:
    return array
  texts, places = np.unique(array, return_inverse=True)
  normal = np.asarray([unicodedata.normalize('NFC', text) for text in texts.tolist()], str)
  return normal[places.reshape(array.shape)]


def _checked_names(y: np.ndarray, names: Sequence[str] | None) -> tuple[str, ...] | None:
  """Returns the names as a tuple. Raises DataError unless there is one for each target."""
  if names is None:
    return None
  if isinstance(names, str) or not all(isinstance(name, str) for name in names):
    raise errors.DataError(f"targets is {names!r:.80}; give the targets' names, such as ['a', 'b']")
  num_targets = int(np.prod(y.shape[1:]))
  # One name may be that of a column of lists.
  if len(names) not in (1, num_targets):
    raise errors.DataError(
      f'targets has {len(names)} names, y has the shape {y.shape}: give {num_targets}'
    )
  return tuple(names)


def _several(y: np.ndarray, kind: str | None, names: tuple[str, ...]) -> Targets:
  """Returns several targets [n, k], which are labels if all are zeros and ones."""
  if y.dtype.kind == 'U':
    raise errors.DataError(
      f'several labels, {", ".join(names)}, must be 0 or 1, or numbers to predict; found the text '
      f'{str(y.flat[0])!r:.40}: predict one column of classes, or give 0 and 1'
    )
  # Columns of one table have one dtype here: labels may be floating-point zeros and ones.
  are_labels = np.isin(y, (0, 1)).all() and kind != 'numbers'
  if kind == 'classes' and not are_labels:
    raise errors.DataError(
      f'several labels, {", ".join(names)}, must be 0 or 1 to be classes: predict one column of '
      "classes, or give kind='numbers'"
    )
  values = _single(y, 'the label')
  return Targets(values, has_labels=bool(are_labels), are_numbers=not are_labels, names=names)


def _whole(y: np.ndarray) -> np.ndarray:
  """Returns floating-point class labels as integers. Raises RowError if one is not whole."""
  whole = y.astype(np.int64)
  if not np.array_equal(whole, y):
    at = int(np.argmax(whole != y))
    after = " (rows count from 0): kind='classes' needs whole numbers or texts"
    raise errors.RowError(f'the label is {y.flat[at]} in ', at, after)
  return whole


def _classes(y: np.ndarray, kind: str | None, names: tuple[str, ...] | None) -> np.ndarray:
  """Returns the different labels, sorted. Says if they might be numbers, or refuses them."""
  classes = np.unique(y)
  count = len(classes)
  if not 2 <= count <= _MOST_CLASSES:
    raise errors.DataError(
      f'the labels have {count} different values; there must be from 2 to {_MOST_CLASSES:,} '
      "classes (kind='numbers' predicts whole numbers as numbers)"
    )
  if kind == 'classes' or count <= _MANY_CLASSES:
    return classes
  # Amounts and ids as a label would otherwise become thousands of outputs.
  if 2 * count > len(y):
    raise errors.DataError(
      f'the labels have {count:,} different values in {len(y):,} rows, such as '
      f'{classes.tolist()[0]!r:.40}: classes must repeat; for numbers to predict give '
      "kind='numbers'"
    )
  if y.dtype.kind in 'iu':
    what = 'the label'
    if names:
      what = f'the label {names[0]!r}'
    warnings.warn(
      f'{what} has {count:,} different whole numbers, from {classes[0]} to {classes[-1]}, which '
      "are read as classes: if they are counts, kind='numbers' predicts them as numbers; "
      "kind='classes' is without this warning",
      stacklevel=1,
    )
  return classes
