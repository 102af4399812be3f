"""Tasks on data sets of Hugging Face's library `datasets`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive_tasks import errors, own_data, own_tables, task as task_lib
from tff_adaptive_tasks.data import files


def from_huggingface(
  dataset: Any,
  client: str,
  label: str,
  *,
  features: str | Sequence[str] | None = None,
  validation: Any = 0.2,
  **options: Any,
) -> task_lib.Task:
  """A task on a data set of Hugging Face with a column that says whose a row is.

  Args:
    dataset: A `datasets.Dataset`: one split, not streamed.
    client: The column of client ids: texts or whole numbers.
    label: The column to predict: texts, whole numbers and class labels are classes, decimals are
      numbers. Class labels keep their names.
    features: One column of arrays or images of one shape; or the columns of numbers and texts to
      predict from. Default: the column of images, if there is one; else all others.
    validation: The share held out, or a `datasets.Dataset` of which nothing is trained on.
    **options: As `from_arrays` takes them: model, validation_by, standardise, seed, name, loss,
      metrics, threshold.

  Returns:
    The task.

  Raises:
    DataError: If it is no `Dataset`, a column is missing, or `from_arrays` refuses.
  """
  import datasets  # Heavy, and an extra.

  source = 'huggingface dataset'
  if not isinstance(dataset, datasets.Dataset) or not len(dataset):
    raise errors.DataError(
      f'dataset is a {type(dataset).__name__}; give a datasets.Dataset with rows, such as'
      " datasets.load_dataset(NAME, split='train')"
    )
  if features is None:
    kinds = dataset.features.items()
    images = [name for name, kind in kinds if isinstance(kind, datasets.Image)]
    if len(images) > 1:
      raise errors.DataError(f'there are the images {", ".join(images)}: name one by features=')
    features = images[0] if images else None
  one = [features] if isinstance(features, str) else features or ()
  own_tables.check_columns(source, dataset.column_names, client, label, one)
  if isinstance(validation, datasets.Dataset):
    if not isinstance(features, str):
      raise errors.DataError(
        'a validation data set of your own goes with one column of arrays: name it by features=, '
        'or hold out a share, such as validation=0.2'
      )
    own_tables.check_columns('validation', validation.column_names, features, label, ())
    validation = (_arrays(validation, features), _labels(datasets, validation, label))
  options = {'source': source, 'validation': validation, **options}
  if isinstance(features, str):
    owners = np.asarray(dataset[client][:])
    return own_data.from_arrays(
      _arrays(dataset, features), _labels(datasets, dataset, label), owners, **options
    )
  table = dataset.to_pandas()
  table[label] = _labels(datasets, dataset, label)
  return own_tables.from_frame(table, source, client, label, features, options)


def _arrays(dataset: Any, column: str) -> np.ndarray:
  """A column of arrays or images of one shape, as one array."""
  with files.border(f'the column {column!r}', 'bring its arrays to one shape by dataset.map'):
    return np.stack([np.asarray(row) for row in dataset.with_format('numpy')[column][:]])


def _labels(library: Any, dataset: Any, column: str) -> np.ndarray:
  """A column of labels; class labels by their names."""
  feature, values = dataset.features[column], pd.Series(dataset[column][:])
  if isinstance(feature, library.ClassLabel):  # -1, which unlabelled rows have, has no name.
    values = values.map(dict(enumerate(feature.names)))
  own_tables.check_filled('the data set', column, values)
  return np.asarray(values.tolist())
