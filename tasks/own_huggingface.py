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
    **options: As `from_arrays` takes them: model, validation, validation_by, standardise, seed,
      name, loss, metrics, threshold.

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
  options = {'source': source, **options}
  kind, labels = dataset.features[label], pd.Series(dataset[label][:])
  if isinstance(kind, datasets.ClassLabel):  # -1, which unlabelled rows have, has no name.
    labels = labels.map(dict(enumerate(kind.names)))
  own_tables.check_filled(source, label, labels)
  y = np.asarray(labels.tolist())
  if not isinstance(features, str):
    table = dataset.to_pandas().assign(**{label: y})
    return own_tables.from_frame(table, source, client, label, features, options)
  with files.border(f'the column {features!r}', 'bring its arrays to one shape by dataset.map'):
    x = np.stack([np.asarray(row) for row in dataset.with_format('numpy')[features][:]])
  return own_data.from_arrays(x, y, np.asarray(dataset[client][:]), **options)
