"""Tasks from a user's own arrays: their clients, held-out data and model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import (
  errors,
  own_metrics,
  own_models,
  own_targets,
  preparation as preparation_lib,
  task as task_lib,
)
from tff_adaptive_tasks.data import files

_MOST_NAMED = 5  # Held-out clients that a description names.


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
  preparation: preparation_lib.Preparation | None = None,
  kind: str | None = None,
  targets: Sequence[str] | None = None,
  metric: str | None = None,
  class_weight: Mapping[Any, float] | str | None = None,
  positive: Any = None,
) -> task_lib.Task:
  """Builds a task from arrays whose rows belong to clients.

  Args:
    x: Array [n, ...] of numbers, the inputs.
    y: Array [n] or [n, 1], the targets. Strings, integers and booleans are classes; floating-point
      numbers are predicted as numbers. Several numbers, or labels of 0 and 1, are [n, k]; see
      `targets`. With your own model and loss it may be [n, ...].
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
      classes and labels the cross-entropy, of probabilities after a softmax or sigmoid, else of
      scores.
    metrics: Names of metrics, as for `models.with_metrics`, and for a Keras model metrics of Keras.
      The default is the accuracy for labels; for classes accuracy and balanced accuracy, for two
      classes also F1 and the areas under the ROC and the precision-recall curve, for more classes
      the mean F1; for numbers the mean absolute error and R2, if there is no `loss`.
    threshold: For a model with one output for two classes: an output above it means the second
      class. For several labels, an output above it means 1. The default is 0.5 after a sigmoid and
      0 for scores; scores with a `loss` require it.
    preparation: The preparation that made x from raw inputs, for `Task.preparation`.
    kind: 'classes' or 'numbers', if the dtype of y does not say what is to be predicted: whole
      numbers such as counts are read as classes otherwise.
    targets: The names of what is predicted. Several names say that y [n, k] of zeros and ones are
      several labels of an example, which do not exclude each other.
    metric: The metric by which displays, sweeps and reports judge, the task's `metric`. The default
      is the accuracy if there is one, else the loss.
    class_weight: Factors of the training loss by label, such as {'yes': 10.0}, 1 for others; or
      'balanced', as in scikit-learn: n / (k n_c) for a class with n_c of the n training examples of
      all clients, of k classes.
    positive: The label of the positive one of two classes, of which precision, recall, F1 and the
      areas under curves are. The default is the last one in sorted order.

  Returns:
    The task. Its `preparation` has the labels of the classes, the threshold of a model with one
    output for two classes or for each label, and with `standardise` the mean and deviation.

  Raises:
    DataError: If the arrays' sizes differ, a value is not finite, there is no loss for the targets,
      the model does not fit the data, or there are fewer than two clients.
  """
  x = _as_inputs(x, 'x')
  y = _as_labels(y, 'y')
  ids = _client_ids(clients)
  for what, array in (('y', y), ('clients', ids)):
    if array.ndim == 0 or len(array) != len(x):
      raise errors.DataError(
        f'x has {len(x)} rows and {what} has shape {array.shape}: give one of each for every row'
      )
  understood = own_targets.understood(y, kind, targets)
  # Statistics and categories come from training rows alone, so this is decided first.
  held = _held_examples(x, y, understood, ids, validation, validation_by, seed)
  train_x = x[held.is_training]
  held_x = held.x
  prepared = preparation or preparation_lib.Preparation()
  if standardise:
    mean, deviation = _statistics(train_x)
    prepared = dataclasses.replace(
      prepared, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist())
    )
    train_x = preparation_lib.standardised(train_x, mean, deviation)
    held_x = preparation_lib.standardised(held_x, mean, deviation)
  # The model may decide the dtypes of inputs and targets.
  problem = own_models.Problem(train_x, understood)
  build_model, built, threshold = own_models.builder(
    model, problem, loss, own_metrics.of_keras(metrics), threshold
  )
  if loss is not None and understood.classes is None and metrics is None:
    metrics = []  # What numbers with a loss of one's own mean is not known.
  weights = own_metrics.class_weights(
    class_weight, understood.classes, understood.y[held.is_training]
  )
  positive_class = own_metrics.positive_class(positive, understood.classes)
  build_model, built = own_metrics.extended(
    build_model, built, problem, metrics, metric, weights, positive_class
  )
  # A loss of Keras may be an object, a function or a text.
  loss_name = str(getattr(loss, 'name', None) or getattr(loss, '__name__', loss))
  # A categorical loss takes floating-point targets too, but its outputs are scores.
  is_categorical = 'categorical' in loss_name.lower()
  prepared = dataclasses.replace(
    prepared,
    classes=understood.classes,
    threshold=threshold,
    is_numbers=understood.are_numbers and not is_categorical,
    targets=understood.names,
  )
  fit = _Fit(built.input_spec, understood.y.ndim)
  train = _clients(
    fit.inputs(train_x), fit.targets(understood.y[held.is_training]), ids[held.is_training]
  )
  if metric is None:
    metric = 'accuracy' if 'accuracy' in built.metric_names else 'loss'
  return task_lib.Task(
    name=name,
    build_model=build_model,
    train=train,
    validation=task_lib.example_arrays(fit.inputs(held_x), fit.targets(held.y)),
    source=source,
    metric=metric,
    preparation=prepared,
    validated_by=held.whose,
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
  inputs = []
  labels = []
  owners = []
  with files.border(
    'the ClientData', 'give pairs (x, y), or name the parts by features= and label='
  ):
    for client in client_data.client_ids:
      for example in client_data.create_tf_dataset_for_client(client).as_numpy_iterator():
        if isinstance(example, tuple):
          x, y = example
        else:
          x = example[features]
          y = example[label]
        if isinstance(y, bytes):
          y = y.decode()
        inputs.append(x)
        labels.append(y)
        owners.append(client)
    all_x = np.stack(inputs)
    all_y = np.stack(labels)
  return from_arrays(all_x, all_y, owners, **{'source': 'tff ClientData', **options})


def training_rows(clients: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
  """Returns bool [n], True for the rows that `from_arrays` with these options trains on."""
  ids = _client_ids(clients)
  validation = options.get('validation', 0.2)
  if isinstance(validation, (tuple, list)):
    return np.ones(len(ids), bool)
  by = options.get('validation_by', 'clients')
  return ~_held_out(ids, validation, by, options.get('seed', 0))


def as_array(values: Any, what: str) -> np.ndarray:
  """Returns values as an array.

  Raises DataError if they are lists of different lengths, or values are masked.
  """
  errors.check_unmasked(values, what)
  try:
    array = np.asarray(values)
    is_of_lists = array.dtype.kind == 'O' and array.ndim == 1 and array.size > 0
    # A data frame's column of lists is an array of objects.
    if is_of_lists and isinstance(array[0], (list, tuple, np.ndarray)):
      array = np.asarray([np.asarray(row) for row in array])
  except ValueError:
    raise errors.DataError(
      f'{what} has lists of different lengths: give lists of one length, such as a 0 or 1 for each '
      'of the classes'
    ) from None
  return array


@dataclasses.dataclass(frozen=True)
class _Fit:
  """Brings arrays to the dtypes of a model, whose `specs` are those of x and y."""

  specs: Mapping[str, Any]
  target_axes: int

  def inputs(self, x: np.ndarray) -> np.ndarray:
    return _cast(x, self.specs['x'].dtype.as_numpy_dtype, 'x')

  def targets(self, y: np.ndarray) -> np.ndarray:
    spec = self.specs['y']
    values = _cast(y, spec.dtype.as_numpy_dtype, 'y')
    if spec.shape.rank == self.target_axes + 1:  # A model of one's own may take [n, 1].
      return values[..., np.newaxis]
    return values


def _cast(values: np.ndarray, dtype: Any, what: str) -> np.ndarray:
  result = values.astype(dtype)
  if result.dtype.kind in 'iub' and not np.array_equal(result, values):
    raise errors.DataError(
      f'the model takes {what} of the dtype {result.dtype}, which cannot hold the values: change it'
    )
  return result


def _clients(x: np.ndarray, y: np.ndarray, ids: np.ndarray) -> task_lib.InMemoryClientData:
  rows_of = pd.Series(0, range(len(x))).groupby(ids).indices  # In order.
  return task_lib.InMemoryClientData(
    {str(client): (x[rows], y[rows]) for client, rows in rows_of.items()}
  )


@dataclasses.dataclass(frozen=True)
class _Held:
  """Which rows train, the examples that are held out, and whose they are in words."""

  is_training: np.ndarray
  x: np.ndarray
  y: np.ndarray
  whose: str


def _held_examples(
  x: np.ndarray,
  y: np.ndarray,
  targets: own_targets.Targets,
  ids: np.ndarray,
  validation: Any,
  by: str,
  seed: int,
) -> _Held:
  if isinstance(validation, (tuple, list)) and len(validation) == 2:
    held_x, held_y = _validation_arrays(validation, x, y, targets)
    return _Held(np.ones(len(x), bool), held_x, held_y, 'the arrays that were given for it')
  is_held = _held_out(ids, validation, by, seed)
  whose = f'the same clients ({validation:.0%} of their examples)'
  if by == 'clients':
    names = np.unique(ids[is_held]).tolist()
    whose = f'{len(names):,} other clients: {", ".join(names[:_MOST_NAMED])}'
    if len(names) == 1:
      whose = f'another client, {names[0]}'
    elif len(names) > _MOST_NAMED:
      whose += ' and others'
  return _Held(~is_held, x[is_held], targets.y[is_held], whose)


def _as_labels(y: Any, what: str) -> np.ndarray:
  """Returns targets [n], also of [n, 1], as `tf.keras.datasets.cifar10` gives them, or [n, ...]."""
  labels = as_array(y, what)
  if labels.ndim == 2 and labels.shape[1] == 1:
    return labels[:, 0]
  return labels


def _held_out(ids: np.ndarray, share: Any, by: str, seed: int) -> np.ndarray:
  """Returns bool [n], True for the rows to hold out; `ids` has the client id of each row."""
  if not isinstance(share, (int, float)) or not 0 < share < 1:
    raise errors.DataError(
      f'validation is {share!r:.80}; it must be a share such as 0.2, or two arrays (x, y)'
    )
  # Sorted, so that which clients are held out does not depend on the order of the rows.
  owners, names = pd.factorize(ids, sort=True)
  count = len(names)
  rng = np.random.default_rng([seed, 17])
  # One client at least is held out, and one at least trains.
  if by == 'clients':
    num_held = min(max(round(share * count), 1), count - 1)
    return np.isin(owners, rng.permutation(count)[:num_held])
  if by != 'examples':
    raise errors.DataError(f"validation_by is {by!r}; it must be 'clients' or 'examples'")
  is_held = np.zeros(len(owners), bool)
  rows_of = pd.Series(0, range(len(owners))).groupby(owners).indices
  for client in range(count):
    rows = rng.permutation(rows_of[client])
    # Each client keeps an example to train on.
    num_held = min(round(share * len(rows)), len(rows) - 1)
    is_held[rows[:num_held]] = True
  if not is_held.any():
    raise errors.DataError(
      f'validation={share:g} holds out no example of any client: give a larger share, or '
      "validation_by='clients'"
    )
  return is_held


def _validation_arrays(
  validation: Any, x: np.ndarray, y: np.ndarray, targets: own_targets.Targets
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the user's validation arrays. Raises DataError if they do not fit x and y."""
  try:
    return _fitting_arrays(validation, x, y, targets)
  except errors.RowError as error:
    # Its row is one of these arrays, and not of the table whose rows a caller may number anew.
    raise errors.DataError(str(error)) from None


def _fitting_arrays(
  validation: Any, x: np.ndarray, y: np.ndarray, targets: own_targets.Targets
) -> tuple[np.ndarray, np.ndarray]:
  held_x = _as_inputs(validation[0], 'the x of validation')
  held_y = _as_labels(validation[1], 'the y of validation')
  for name, held, given in (('x', held_x, x), ('y', held_y, y)):
    expected = (len(held_x), *given.shape[1:])
    if held.shape != expected:
      raise errors.DataError(
        f'the {name} of validation has shape {held.shape}; it must be {expected}, as in training'
      )
  return held_x, own_targets.numbered(held_y, targets)


def _client_ids(clients: Any) -> np.ndarray:
  """Returns ids as strings. Raises DataError unless all are strings or integers, and two differ."""
  ids = as_array(clients, 'clients')
  if not all(isinstance(value, (str, int, np.integer)) for value in ids.flat):
    raise errors.DataError(f'clients have dtype {ids.dtype}; give strings or whole numbers')
  _check_distinct(clients)
  ids = own_targets.composed(ids.astype(str))
  if ids.size and (ids == ids.flat[0]).all():
    raise errors.DataError(
      f'all rows belong to one client, {str(ids.flat[0])!r}: federated training needs at least two'
    )
  return ids


def _check_distinct(clients: Any) -> None:
  """Raises DataError if two clients, such as 1 and '1', would get one name."""
  if not isinstance(clients, (list, tuple)) and np.asarray(clients).dtype.kind != 'O':
    return  # An array of one dtype has one kind of names.
  names: dict[str, Any] = {}
  for client in dict.fromkeys(np.asarray(clients, object).flat):
    first = names.setdefault(str(client), client)
    if first != client:
      raise errors.DataError(
        f'the clients {first!r} and {client!r} would have one name: give all strings, or all whole '
        'numbers'
      )


def _as_inputs(x: Any, what: str) -> np.ndarray:
  x = as_array(x, what)
  if x.dtype.kind not in 'biuf':
    raise errors.DataError(
      f'{what} has dtype {x.dtype}; it must hold numbers (tasks.from_csv maps strings to numbers)'
    )
  if x.ndim < 2 or not x.size:
    raise errors.DataError(f'{what} has shape {x.shape}; it must be [n, ...], of 2 axes or more')
  if x.dtype.kind == 'f':
    # The model computes in float32, in which a large float64 is infinite.
    with np.errstate(over='ignore'):
      task_lib.check_finite({what: x.astype(np.float32)}, own_targets.ROWS)
  return x


def _statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the mean and deviation of each column [n, columns]; a deviation of 0 becomes 1."""
  if x.ndim != 2:
    raise errors.DataError(
      f'standardise is for inputs [examples, columns], these have shape {x.shape}: scale them first'
    )
  mean = x.mean(0, dtype=np.float64)
  deviation = x.std(0, dtype=np.float64)
  # Rounding leaves a constant column a small deviation, by which it would explode.
  is_constant = deviation <= 1e-12 * np.abs(mean)
  return mean, np.where(is_constant, 1, deviation)
