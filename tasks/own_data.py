"""Tasks on a user's own arrays: who has which rows, what is held out, and which model learns."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tff_adaptive_tasks import errors, own_models, preparation as preparation_lib, task as task_lib

_MOST_CLASSES = 10_000


def from_arrays(
  x: Any,
  y: Any,
  clients: Any,
  *,
  model: str | Callable = 'logistic_regression',
  validation: float | Sequence[Any] = 0.2,
  validation_by: str = 'clients',
  standardise: bool = False,
  seed: int = 0,
  name: str = 'own_data',
  source: str = 'arrays',
  loss: Any = None,
  metrics: Sequence[Any] | None = None,
  preparation: preparation_lib.Preparation | None = None,
) -> task_lib.Task:
  """A task on arrays whose rows belong to clients.

  Args:
    x: Array [n, ...] of numbers, the inputs.
    y: Array [n], the targets: texts, whole numbers or truth values are classes, other numbers are
      what is to be predicted. [n, ...] with a model and a loss of your own.
    clients: Array [n] of client ids: texts or whole numbers.
    model: 'logistic_regression' (linear regression where targets are numbers) or 'mlp', one hidden
      layer of 100; or a function that makes a Keras model: without arguments, or of (shape of an
      input, outputs); or a function of a seed that gives a `tff_adaptive.models.Model`. Arguments
      with a default do not count.
    validation: The share held out, in (0, 1); or two arrays (x, y), of which nothing is trained on.
    validation_by: 'clients' holds out whole clients: how well the model serves new ones;
      'examples' holds out that share of each client's examples.
    standardise: Whether each input gets mean 0 and deviation 1 over the training examples.
    seed: Decides what is held out.
    name: The task's name.
    source: Where the data are from, for the run's record.
    loss: For a Keras model, a loss of Keras; by default softmax or binary cross-entropy for
      classes, by the model's last activation, and the squared error for numbers.
    metrics: For a Keras model, metrics of Keras; by default accuracy, or the mean absolute error.
    preparation: What was done to the raw inputs to make x; recorded on the task.

  Returns:
    The task. Its `preparation` has the labels of the classes, the threshold of a Keras model with
    one output for two classes and, if asked, mean and deviation.

  Raises:
    DataError: If arrays do not fit each other, a value is not finite, targets are of a kind that
      has no loss, or there are fewer than two clients.
  """
  x, y = _as_inputs(x, 'x'), np.asarray(y)
  ids = _client_ids(clients)
  for what, array in (('y', y), ('clients', ids)):
    if array.ndim == 0 or len(array) != len(x):
      raise errors.DataError(
        f'x has {len(x)} rows and {what} has shape {array.shape}: give one of each for every row'
      )
  targets, classes = _targets(y)
  share = _share(validation)
  split = _split(ids, share, validation_by, seed)
  train_x, train_y = x[split.rows], targets[split.rows]
  if share is None:
    held_x, held_y = _held_out(validation, x, y, classes)
  else:
    held_x, held_y = x[split.held_out], targets[split.held_out]
  made = preparation or preparation_lib.Preparation()
  if standardise:
    mean, deviation = _statistics(train_x)
    made = dataclasses.replace(made, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))
    train_x, held_x = ((part - mean) / deviation for part in (train_x, held_x))
  bounds = [float(f(part)) for f in (np.min, np.max) for part in (train_x, held_x)]
  problem = own_models.Problem(x.shape[1:], targets, classes, (min(bounds), max(bounds)))
  build_model, x_dtype, y_dtype, metric = own_models.builder(model, problem, loss, metrics)
  made = dataclasses.replace(
    made,
    classes=classes,
    threshold=own_models.threshold(model, problem, loss, metrics),
    is_numbers=own_models.predicts_numbers(problem, loss),
  )
  return task_lib.Task(
    name=name,
    build_model=build_model,
    train=task_lib.InMemoryClientData(
      {
        client: (train_x[rows].astype(x_dtype), train_y[rows].astype(y_dtype))
        for client, rows in split.by_client.items()
      }
    ),
    validation=task_lib.example_arrays(held_x.astype(x_dtype), held_y.astype(y_dtype)),
    source=source,
    metric=metric,
    preparation=made,
  )


@dataclasses.dataclass(frozen=True)
class _Split:
  """Which rows train and which are held out.

  Attributes:
    rows: The training rows.
    by_client: Client id -> where its rows stand among `rows`.
    held_out: The rows held out.
  """

  rows: np.ndarray
  by_client: dict[str, np.ndarray]
  held_out: np.ndarray


def _share(validation: Any) -> float | None:
  """The share that is held out; None where `validation` is a pair of arrays."""
  if isinstance(validation, (tuple, list)) and len(validation) == 2:
    return None
  is_number = isinstance(validation, numbers.Real) and not isinstance(validation, (bool, np.bool_))
  if not is_number or not 0 < validation < 1:
    is_plain = isinstance(validation, (str, numbers.Number, type(None)))
    found = repr(validation)[:80] if is_plain else f'a {type(validation).__name__}'
    if isinstance(validation, (tuple, list)):
      found += f' of {len(validation)}'
    raise errors.DataError(
      f'validation is {found}; it must be a share such as 0.2, or two arrays (x, y)'
    )
  return float(validation)


def _held_out(
  validation: Any, x: np.ndarray, y: np.ndarray, classes: tuple[Any, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
  """The validation arrays that were given, as training's are; DataError if they do not fit them."""
  held_x = _as_inputs(validation[0], 'the x of validation')
  held_y = _like_targets(validation[1], y, classes)
  if held_x.shape[1:] != x.shape[1:]:
    raise errors.DataError(
      f'the x of validation has shape {held_x.shape} and that of training {x.shape}: all but the'
      ' first number must be the same'
    )
  if held_y.shape != (len(held_x), *y.shape[1:]):
    raise errors.DataError(
      f'the y of validation has shape {held_y.shape}; it must be {(len(held_x), *y.shape[1:])}, one'
      ' target for each row of its x'
    )
  return held_x, held_y


def _split(ids: np.ndarray, share: float | None, by: str, seed: int) -> _Split:
  """Which rows train; all of them where `share` is None."""
  names, owners = np.unique(ids, return_inverse=True)
  if len(names) < 2:
    raise errors.DataError(
      f'all rows belong to one client, {names[0]!r}: federated training needs at least two; check '
      'the column of clients'
    )
  rng = np.random.default_rng([seed, 17])
  is_held = np.zeros(len(ids), bool)
  if share is not None:
    if by == 'clients':
      count = min(max(round(share * len(names)), 1), len(names) - 1)
      is_held = np.isin(owners, rng.permutation(len(names))[:count])
    elif by == 'examples':
      for client in range(len(names)):
        rows = rng.permutation(np.flatnonzero(owners == client))
        is_held[rows[: min(round(share * len(rows)), len(rows) - 1)]] = True
      if not is_held.any():
        raise errors.DataError(
          f'validation={share:g} of each client is no example: give a larger share, or '
          "validation_by='clients'"
        )
    else:
      raise errors.DataError(f"validation_by is {by!r}; it must be 'clients' or 'examples'")
  rows = np.flatnonzero(~is_held)
  order = np.argsort(owners[rows], kind='stable')
  present, starts = np.unique(owners[rows][order], return_index=True)
  parts = np.split(order, starts[1:])
  by_client = {str(names[c]): part for c, part in zip(present, parts)}
  return _Split(rows, by_client, np.flatnonzero(is_held))


def _as_inputs(x: Any, what: str) -> np.ndarray:
  x = np.asarray(x)
  if x.dtype.kind not in 'biuf':
    raise errors.DataError(
      f'{what} has dtype {x.dtype}; it must hold numbers (tasks.from_csv maps texts to numbers)'
    )
  if x.ndim < 2 or not x.size:
    raise errors.DataError(f'{what} has shape {x.shape}; it must be [examples, ...], not empty')
  if x.dtype.kind == 'f':
    with np.errstate(over='ignore'):
      x = x.astype(np.float32)
    bad = np.argwhere(~np.isfinite(x))
    if bad.size:
      row, *place = map(int, bad[0])
      raise errors.DataError(
        f'{what} is {x[tuple(bad[0])]} in row {row} (rows count from 0), place {place}: fill it in '
        'or leave the row out'
      )
  return x


def _client_ids(clients: Any) -> np.ndarray:
  ids = np.asarray(clients)
  if ids.dtype.kind == 'O':
    for row, value in enumerate(ids.ravel()):
      if not isinstance(value, (str, int, np.integer)):
        raise errors.DataError(
          f'the client in row {row} (rows count from 0) is {value!r:.40}: give a text or a whole '
          'number'
        )
  elif ids.dtype.kind not in 'iuU':
    raise errors.DataError(f'clients have dtype {ids.dtype}; give texts or whole numbers')
  return ids.astype(str)


def _targets(y: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...] | None]:
  """Class numbers and the classes' labels; or numbers and None."""
  if y.dtype.kind == 'O' and all(isinstance(value, str) for value in y.ravel()):
    y = y.astype(str)
  if y.dtype.kind == 'f':
    bad = np.argwhere(~np.isfinite(y))
    if bad.size:
      raise errors.DataError(
        f'the label in row {bad[0][0]} (rows count from 0) is {y[tuple(bad[0])]}: fill it in or '
        'leave the row out'
      )
    return y.astype(np.float32), None
  if y.dtype.kind not in 'biuU':
    raise errors.DataError(
      f'labels have dtype {y.dtype}, of which no loss is known: give texts or whole numbers for '
      'classes, or floating-point numbers to predict'
    )
  if y.ndim > 1:
    return y.astype(np.int32), None
  classes, codes = np.unique(y, return_inverse=True)
  if not 2 <= len(classes) <= _MOST_CLASSES:
    raise errors.DataError(
      f'the labels have {len(classes)} different values; there must be from 2 to {_MOST_CLASSES:,} '
      'classes (numbers to predict are given as floating-point numbers)'
    )
  return codes.astype(np.int32), tuple(classes.tolist())


def _like_targets(y: Any, of_training: np.ndarray, classes: tuple | None) -> np.ndarray:
  """The targets of validation arrays, as class numbers where training has classes."""
  y = np.asarray(y)
  if classes is None:
    if y.dtype.kind not in 'iuf':
      raise errors.DataError(f'the y of validation has dtype {y.dtype}, that of training numbers')
    return y.astype(np.float32 if of_training.dtype.kind == 'f' else np.int32)
  if y.ndim != 1:
    raise errors.DataError(f'the y of validation has shape {y.shape}; it must be [examples]')
  positions = {label: i for i, label in enumerate(classes)}
  found = [positions.get(label, -1) for label in y.tolist()]
  if -1 in found:
    row = found.index(-1)
    raise errors.DataError(
      f'the y of validation is {y[row]!r} in row {row} (rows count from 0), a class that training '
      'has not'
    )
  return np.asarray(found, np.int32)


def _statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Mean and deviation of each input; deviation 1 where none deviates."""
  if x.ndim != 2:
    raise errors.DataError(
      f'standardise is for inputs [examples, columns], these have shape {x.shape}: scale them first'
    )
  mean, deviation = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
  constant = deviation <= 1e-7 * np.maximum(1, np.abs(mean))
  return mean.astype(np.float32), np.where(constant, 1, deviation).astype(np.float32)
