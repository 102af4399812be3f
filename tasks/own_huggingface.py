"""Tasks on data sets of Hugging Face's library `datasets`."""

import os
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
      predict from. Default: the column of images, if there is one; else all others.
    split: The split, where `dataset` is a folder or a name.
    validation: The share held out, or a `datasets.Dataset` of which nothing is trained on.
    **options: As `from_arrays` takes them: model, validation_by, standardise, seed, name, loss,
      metrics, threshold.

  Returns:
    The task.

  Raises:
    DataError: If `datasets` is not installed, the data set cannot be read or has several splits, a
      column is missing, or `from_arrays` refuses.
  """
  try:
    import datasets  # Heavy, and an extra.
  except ImportError:
    raise errors.DataError(
      "Hugging Face's datasets is not installed: pip install 'tff-adaptive[huggingface]', or pip "
      'install datasets'
    ) from None
  source = 'huggingface dataset'
  if isinstance(dataset, str):
    source = os.path.expanduser(dataset)
    with files.border(f'{dataset!r}, split {split!r},', 'check the name, the split, the network'):
      if os.path.isdir(source):
        found = datasets.load_from_disk(source)
        dataset = found[split] if isinstance(found, datasets.DatasetDict) else found
      else:
        dataset = datasets.load_dataset(dataset, split=split)
  if not isinstance(dataset, datasets.Dataset) or not len(dataset):
    splits = f' with the splits {", ".join(dataset)}' if isinstance(dataset, dict) else ''
    raise errors.DataError(
      f'dataset is a {type(dataset).__name__}{splits}; give a datasets.Dataset with rows: one '
      'split, not streamed'
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
