"""Tasks from a user's own arrays: their clients, held-out data and model."""

import dataclasses
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import (
  errors,
  own_metrics,
  own_models,
  preparation as preparation_lib,
  task as task_lib,
)
from tff_adaptive_tasks.data import files

_MOST_CLASSES = 10_000
_MANY_CLASSES = 20  # Of more classes it is asked whether they repeat.
_ROWS = 'the data (rows count from 0)'


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
  threshold: float | None = None,
  metric: str | None = None,
  class_weight: Mapping[Any, float] | str | None = None,
  preparation: preparation_lib.Preparation | None = None,
) -> task_lib.Task:
  """Builds a task from arrays whose rows belong to clients.

  Args:
    x: Array [n, ...] of numbers, the inputs.
    y: Array [n] or [n, 1], the targets. Strings, integers and booleans are classes; floating-point
      numbers are predicted as numbers. With your own model and loss it may be [n, ...].
    clients: Array [n] of client ids, strings or integers.
    model: 'logistic_regression' (linear regression if targets are numbers); 'mlp', with one hidden
      layer of 100; a function without arguments, or of (shape of an input, number of outputs), that
      returns a Keras model; or a function of a seed that returns a `tff_adaptive.models.Model`.
      Arguments with a default do not count.
    validation: The share to hold out, in (0, 1), or a pair of arrays (x, y) of held-out examples.
    validation_by: 'clients' holds out whole clients and shows how well the model serves new
      clients. 'examples' holds out the share of each client's examples.
    standardise: Whether each column of x [n, columns] gets mean 0 and deviation 1 in training.
    seed: The seed that decides what is held out.
    name: The task's name.
    source: The origin of the data, which config.json records.
    loss: For a Keras model, a loss of Keras. The default is the squared error for numbers, and for
      classes the cross-entropy, of probabilities after a softmax or sigmoid, else of scores.
    metrics: Names of metrics, as for `models.with_metrics`, and for a Keras model metrics of Keras.
      The default is, for classes, accuracy and balanced accuracy, for two classes also F1 and the
      areas under the ROC and the precision-recall curve, for more classes the mean F1; for numbers
      the mean absolute error, if there is no `loss`, and R2.
    threshold: For a model with one output for two classes: an output above it means the second
      class. The default is 0.5 after a sigmoid and 0 for scores; scores with a `loss` require it.
    metric: The metric by which displays, sweeps and reports judge, the task's `metric`. The default
      is the accuracy if there is one, else the loss.
    class_weight: Factors of the training loss by label, such as {'yes': 10.0}, 1 for others; or
      'balanced', as in scikit-learn: n / (k n_c) for a class with n_c of the n training examples of
      all clients, of k classes.
    preparation: The preparation that made x from raw inputs, for `Task.preparation`.

  Returns:
    The task. Its `preparation` has the labels of the classes, the threshold of a Keras model with
    one output for two classes, and with `standardise` the mean and deviation.

  Raises:
    DataError: If the arrays' sizes differ, a value is not finite, there is no loss for the targets,
      the model does not fit the data, or there are fewer than two clients.
  """
  x, y = _as_inputs(x, 'x'), _as_labels(y, 'y')
  ids = _client_ids(clients)
  for what, array in (('y', y), ('clients', ids)):
    if array.ndim == 0 or len(array) != len(x):
      raise errors.DataError(
        f'x has {len(x)} rows and {what} has shape {array.shape}: give one of each for every row'
      )
  targets, classes = _targets(y)
  is_pair = isinstance(validation, (tuple, list)) and len(validation) == 2
  is_held = np.zeros(len(x), bool) if is_pair else _held_out(ids, validation, validation_by, seed)
  train_x, held_x, held_y = x[~is_held], x[is_held], targets[is_held]
  if is_pair:
    held_x, held_y = _validation_arrays(validation, x, y, classes)
  made = preparation or preparation_lib.Preparation()
  if standardise:
    mean, deviation = _statistics(train_x)
    made = dataclasses.replace(made, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))
    train_x = preparation_lib.standardised(train_x, mean, deviation)
    held_x = preparation_lib.standardised(held_x, mean, deviation)
  problem = own_models.Problem(train_x, targets, classes)
  build_model, built, threshold = own_models.builder(
    model, problem, loss, own_metrics.of_keras(metrics), threshold
  )
  if loss is not None and classes is None and metrics is None:
    metrics = []  # What numbers with a loss of one's own mean is not known.
  weights = own_metrics.class_weights(class_weight, classes, targets[~is_held])
  build_model, built = own_metrics.extended(build_model, built, problem, metrics, metric, weights)
  loss_name = str(getattr(loss, 'name', None) or getattr(loss, '__name__', loss))
  made = dataclasses.replace(
    made,
    classes=classes,
    threshold=threshold,
    is_numbers=classes is None and y.dtype.kind == 'f' and 'categorical' not in loss_name.lower(),
  )
  x_dtype, y_dtype = (built.input_spec[k].dtype.as_numpy_dtype for k in ('x', 'y'))
  train_x, held_x = _cast(train_x, x_dtype, 'x'), _cast(held_x, x_dtype, 'x')
  train_y, held_y = _cast(targets[~is_held], y_dtype, 'y'), _cast(held_y, y_dtype, 'y')
  if built.input_spec['y'].shape.rank == targets.ndim + 1:  # A model of one's own may take [n, 1].
    train_y, held_y = train_y[..., np.newaxis], held_y[..., np.newaxis]
  rows_of = pd.Series(0, range(len(train_x))).groupby(ids[~is_held]).indices  # In order.
  return task_lib.Task(
    name=name,
    build_model=build_model,
    train=task_lib.InMemoryClientData(
      {str(c): (train_x[rows], train_y[rows]) for c, rows in rows_of.items()}
    ),
    validation=task_lib.example_arrays(held_x, held_y),
    source=source,
    metric=metric or ('accuracy' if 'accuracy' in built.metric_names else 'loss'),
    preparation=made,
  )


def from_tff(
  client_data: Any, *, features: str = 'x', label: str = 'y', **options: Any
) -> task_lib.Task:
  """Builds a task from a `tff.simulation.datasets.ClientData`, whose examples are read into memory.

  Args:
    client_data: Datasets of single examples, which are pairs (x, y) or mappings.
    features: The name of the inputs in a mapping.
    label: The name of the target in a mapping.
    **options: Other arguments of `from_arrays`.

  Raises:
    DataError: If examples are neither pairs nor such mappings, or `from_arrays` raises it.
  """
  rows: list[tuple[Any, Any, str]] = []
  with files.border(
    'the ClientData', 'give pairs (x, y), or name the parts by features= and label='
  ):
    for client in client_data.client_ids:
      for example in client_data.create_tf_dataset_for_client(client).as_numpy_iterator():
        x, y = example if isinstance(example, tuple) else (example[features], example[label])
        rows.append((x, y.decode() if isinstance(y, bytes) else y, client))
    x, y = (np.stack([row[i] for row in rows]) for i in (0, 1))
  owners = [client for _, _, client in rows]
  return from_arrays(x, y, owners, **{'source': 'tff ClientData', **options})


def _cast(values: np.ndarray, dtype: Any, what: str) -> np.ndarray:
  found = values.astype(dtype)
  if found.dtype.kind in 'iub' and not np.array_equal(found, values):
    raise errors.DataError(
      f'the model takes {what} of the dtype {found.dtype}, which cannot hold the values: change it'
    )
  return found


def training_rows(clients: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
  """Returns bool [n], True for the rows that `from_arrays` with these options trains on."""
  ids, validation = _client_ids(clients), options.get('validation', 0.2)
  if isinstance(validation, (tuple, list)):
    return np.ones(len(ids), bool)
  by, seed = options.get('validation_by', 'clients'), options.get('seed', 0)
  return ~_held_out(ids, validation, by, seed)


def as_array(values: Any, what: str) -> np.ndarray:
  """Returns values as an array. Raises DataError if they are lists of different lengths."""
  try:
    array = np.asarray(values)
    is_of_lists = array.dtype.kind == 'O' and array.ndim == 1 and array.size > 0
    if is_of_lists and isinstance(array[0], (list, tuple, np.ndarray)):
      array = np.asarray([np.asarray(row) for row in array])
  except ValueError:
    raise errors.DataError(
      f'{what} has lists of different lengths: give lists of one length, such as a 0 or 1 for each '
      'of the classes'
    ) from None
  return array


def _as_labels(y: Any, what: str) -> np.ndarray:
  """Returns targets [n], also of [n, 1], as `tf.keras.datasets.cifar10` gives them, or [n, ...]."""
  y = as_array(y, what)
  return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _held_out(ids: np.ndarray, share: Any, by: str, seed: int) -> np.ndarray:
  """Returns bool [n], True for the rows to hold out; `ids` has the client id of each row."""
  if not isinstance(share, (int, float)) or not 0 < share < 1:
    raise errors.DataError(
      f'validation is {share!r:.80}; it must be a share such as 0.2, or two arrays (x, y)'
    )
  owners, names = pd.factorize(ids, sort=True)
  rng, count = np.random.default_rng([seed, 17]), len(names)
  if by == 'clients':
    held = min(max(round(share * count), 1), count - 1)
    return np.isin(owners, rng.permutation(count)[:held])
  if by != 'examples':
    raise errors.DataError(f"validation_by is {by!r}; it must be 'clients' or 'examples'")
  is_held = np.zeros(len(owners), bool)
  rows_of = pd.Series(0, range(len(owners))).groupby(owners).indices
  for client in range(count):
    rows = rng.permutation(rows_of[client])
    is_held[rows[: min(round(share * len(rows)), len(rows) - 1)]] = True
  if not is_held.any():
    raise errors.DataError(
      f'validation={share:g} holds out no example of any client: give a larger share, or '
      "validation_by='clients'"
    )
  return is_held


def _validation_arrays(
  validation: Any, x: np.ndarray, y: np.ndarray, classes: tuple[Any, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the user's validation arrays. Raises DataError if they do not fit x and y."""
  held_x = _as_inputs(validation[0], 'the x of validation')
  held_y = _as_labels(validation[1], 'the y of validation')
  for name, held, given in (('x', held_x, x), ('y', held_y, y)):
    expected = (len(held_x), *given.shape[1:])
    if held.shape != expected:
      raise errors.DataError(
        f'the {name} of validation has shape {held.shape}; it must be {expected}, as in training'
      )
  if classes is None:
    return held_x, held_y.astype(np.float32 if y.dtype.kind == 'f' else np.int32)
  held_y = _composed(held_y)
  positions = {label: i for i, label in enumerate(classes)}
  if unknown := [label for label in held_y.tolist() if label not in positions]:
    raise errors.DataError(f'the y of validation has {unknown[0]!r}, a class that training has not')
  return held_x, np.asarray([positions[label] for label in held_y.tolist()], np.int32)


def _client_ids(clients: Any) -> np.ndarray:
  """Returns ids as strings. Raises DataError unless all are strings or integers, and two differ."""
  ids = as_array(clients, 'clients')
  if not all(isinstance(value, (str, int, np.integer)) for value in ids.flat):
    raise errors.DataError(f'clients have dtype {ids.dtype}; give strings or whole numbers')
  ids = _composed(ids.astype(str))
  if ids.size and (ids == ids.flat[0]).all():
    raise errors.DataError(
      f'all rows belong to one client, {str(ids.flat[0])!r}: federated training needs at least two'
    )
  return ids


def _as_inputs(x: Any, what: str) -> np.ndarray:
  x = as_array(x, what)
  if x.dtype.kind not in 'biuf':
    raise errors.DataError(
      f'{what} has dtype {x.dtype}; it must hold numbers (tasks.from_csv maps strings to numbers)'
    )
  if x.ndim < 2 or not x.size:
    raise errors.DataError(f'{what} has shape {x.shape}; it must be [n, ...], of 2 axes or more')
  if x.dtype.kind == 'f':
    with np.errstate(over='ignore'):
      task_lib.check_finite({what: x.astype(np.float32)}, _ROWS)
  return x


def _targets(y: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...] | None]:
  """Returns class numbers and the labels of the classes, or numbers to predict and None."""
  if y.dtype.kind == 'O' and all(isinstance(value, str) for value in y.ravel()):
    y = y.astype(str)
  y = _composed(y)
  if y.dtype.kind == 'f':
    task_lib.check_finite({'the label': y}, _ROWS)
    return y.astype(np.float32), None
  if y.dtype.kind not in 'biuU':
    raise errors.DataError(
      f'labels have dtype {y.dtype}, for which there is no loss: give strings or integers for '
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
  if len(classes) > _MANY_CLASSES and 2 * len(classes) > len(y):
    raise errors.DataError(
      f'the labels have {len(classes):,} different values in {len(y):,} rows, such as '
      f'{classes.tolist()[0]!r:.40}: classes must repeat; numbers to predict are given as '
      'floating-point numbers, in a table as 12.0'
    )
  return codes.astype(np.int32), tuple(classes.tolist())


def _composed(array: np.ndarray) -> np.ndarray:
  """Returns texts in Unicode's composed form (NFC), and other arrays unchanged."""
  if array.dtype.kind == 'O' and array.size and all(isinstance(v, str) for v in array.flat):
    array = array.astype(str)
  if array.dtype.kind != 'U':
    return array
  texts, places = np.unique(array, return_inverse=True)
  normal = np.asarray([unicodedata.normalize('NFC', text) for text in texts.tolist()], str)
  return normal[places.reshape(array.shape)] if array.size else array


def _statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the mean and deviation of each column [n, columns]; a deviation of 0 becomes 1."""
  if x.ndim != 2:
    raise errors.DataError(
      f'standardise is for inputs [examples, columns], these have shape {x.shape}: scale them first'
    )
  mean, deviation = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
  constant = deviation <= 1e-12 * np.abs(mean)
  return mean, np.where(constant, 1, deviation)
