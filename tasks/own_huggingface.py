"""Tasks on data sets of Hugging Face's library `datasets`."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive_tasks import errors, own_data, own_tables, task as task_lib


def from_huggingface(
  dataset: Any,
  client: str,
  label: str,
  *,
  features: str | Sequence[str] | None = None,
  split: str = 'train',
  validation: Any = 0.2,
  **options: Any,
) -> task_lib.Task:
  """A task on a data set of Hugging Face with a column that says whose a row is.

  Args:
    dataset: A `datasets.Dataset`; or the folder of one that `save_to_disk` wrote; or a name on the
      Hub, which is downloaded.
    client: The column of client ids: texts or whole numbers.
    label: The column to predict: texts, whole numbers and class labels are classes, decimals are
      numbers. Class labels keep their names.
    features: One column of arrays or images of one shape; or the columns of numbers and texts to
      predict from, by default all others.
    split: The split, where `dataset` is a folder or a name.
    validation: The share held out, or a `datasets.Dataset` of which nothing is trained on.
    **options: As `from_arrays` takes them: model, validation_by, standardise, seed, name, loss,
      metrics.

  Returns:
    The task.

  Raises:
    DataError: If `datasets` is not installed, the data set cannot be read or has several splits, a
      column is missing, or `from_arrays` refuses.
  """
  library = _library()
  source = 'huggingface dataset'
  if isinstance(dataset, str):
    source, dataset = dataset, _load(library, dataset, split)
  if isinstance(validation, (library.Dataset, library.DatasetDict, library.IterableDataset)):
    if features is None or not isinstance(features, str):
      raise errors.DataError(
        'a validation data set of your own goes with one column of arrays: name it by features=, '
        'or hold out a share, such as validation=0.2'
      )
    held = _checked(library, validation, 'validation')
    _check_columns(held, label, features, ())
    validation = (_arrays(held, features), _labels(library, held, label))
  _checked(library, dataset, 'dataset')
  options = {'source': source, 'validation': validation, **options}
  if isinstance(features, str):
    _check_columns(dataset, client, label, [features])
    x, y = _arrays(dataset, features), _labels(library, dataset, label)
    return own_data.from_arrays(x, y, np.asarray(dataset[client][:]), **options)
  _check_columns(dataset, client, label, features or ())
  table = dataset.to_pandas()
  table[label] = _labels(library, dataset, label)
  return own_tables.from_frame(table, source, client, label, features, options)


def _library() -> Any:
  try:
    import datasets  # Heavy, and an extra.
  except ImportError:
    raise errors.DataError(
      "Hugging Face's datasets is not installed: pip install 'tff-adaptive[huggingface]', or pip "
      'install datasets'
    ) from None
  return datasets


def _load(library: Any, name: str, split: str) -> Any:
  """A data set of a folder or of the Hub."""
  path = os.path.expanduser(name)
  try:
    if not os.path.isdir(path):
      return library.load_dataset(name, split=split)
    found = library.load_from_disk(path)
    return found[split] if isinstance(found, library.DatasetDict) else found
  except Exception as error:  # Of networks, files, formats and the Hub.
    text = ' '.join(str(error).split())
    raise errors.DataError(f'{name!r}, split {split!r}, cannot be loaded: {text}') from None


def _checked(library: Any, dataset: Any, what: str) -> Any:
  """The data set; DataError if it is of another kind."""
  if isinstance(dataset, (library.DatasetDict, library.IterableDatasetDict)):
    raise errors.DataError(
      f'{what} has the splits {", ".join(dataset)}: give one of them, such as '
      f'{what}[{next(iter(dataset), "train")!r}]'
    )
  if isinstance(dataset, library.IterableDataset):
    raise errors.DataError(f'{what} is streamed: load it without streaming=True')
  if not isinstance(dataset, library.Dataset):
    raise errors.DataError(f'{what} is of type {type(dataset).__name__}; give a datasets.Dataset')
  if not len(dataset):
    raise errors.DataError(f'{what} has no rows')
  return dataset


def _check_columns(dataset: Any, client: str, label: str, features: Sequence[str]) -> None:
  own_tables.check_columns('the data set', dataset.column_names, client, label, features)


def _arrays(dataset: Any, column: str) -> np.ndarray:
  """A column of arrays or images of one shape, as one array."""
  rows = [np.asarray(row) for row in dataset.with_format('numpy')[column][:]]
  shapes = {row.shape for row in rows}
  if len(shapes) > 1:
    raise errors.DataError(
      f'{column!r} has arrays of the shapes {", ".join(map(str, sorted(shapes)[:3]))}: bring them '
      'to one by dataset.map'
    )
  return np.stack(rows)


def _labels(library: Any, dataset: Any, column: str) -> np.ndarray:
  """A column of labels; class labels by their names."""
  feature, values = dataset.features[column], dataset[column][:]
  missing = next((row for row, value in enumerate(values) if value is None), None)
  if missing is not None:
    raise errors.DataError(
      f'the column {column!r} is empty in row {missing} (rows count from 0): fill it in or leave '
      'the row out'
    )
  if isinstance(feature, library.ClassLabel):
    classes = range(feature.num_classes)
    wrong = next((row for row, value in enumerate(values) if value not in classes), None)
    if wrong is not None:  # -1 is what unlabelled rows have.
      raise errors.DataError(
        f'the column {column!r} is {values[wrong]} in row {wrong} (rows count from 0), which is '
        f'none of its {feature.num_classes} classes: leave such rows out'
      )
    return np.asarray(feature.int2str(values))
  return np.asarray(values)
