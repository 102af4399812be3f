"""Tasks on `tff.simulation.datasets.ClientData`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_adaptive_tasks import errors, own_data, task as task_lib


def from_tff(
  client_data: tff.simulation.datasets.ClientData,
  *,
  features: str | None = None,
  label: str | None = None,
  validation: float | tff.simulation.datasets.ClientData = 0.2,
  **options: Any,
) -> task_lib.Task:
  """A task on a `tff.simulation.datasets.ClientData`, whose examples are read into memory.

  Args:
    client_data: Datasets of single examples: pairs (x, y), or mappings of two features.
    features: The name of the inputs, where examples are mappings; by default 'x'.
    label: The name of the target, where examples are mappings; by default 'y'.
    validation: The share held out, or other clients, whose examples are all held out.
    **options: As `from_arrays` takes them: model, validation_by, standardise, seed, name, loss,
      metrics, threshold.

  Returns:
    The task.

  Raises:
    DataError: If examples have another form or `from_arrays` refuses.
  """
  x, y, clients = _read(client_data, features, label)
  held_out: Any = validation
  if isinstance(validation, tff.simulation.datasets.ClientData):
    held_out = _read(validation, features, label)[:2]
  return own_data.from_arrays(
    x, y, clients, validation=held_out, **{'source': 'tff ClientData', **options}
  )


def _read(
  client_data: Any, features: str | None, label: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """All examples: x, y and whose each is."""
  if not isinstance(client_data, tff.simulation.datasets.ClientData):
    raise errors.DataError(
      f'expected a tff.simulation.datasets.ClientData, found {type(client_data).__name__}'
    )
  element, names = client_data.element_type_structure, (features or 'x', label or 'y')
  is_pair = isinstance(element, tuple) and len(element) == 2
  if not is_pair and not (isinstance(element, Mapping) and set(names) <= set(element)):
    raise errors.DataError(
      f'examples are {element}; they must be pairs (x, y), or mappings with {names[0]!r} and '
      f'{names[1]!r}: name others by features= and label=, or give client_data.preprocess(...)'
    )
  inputs, target = (0, 1) if is_pair else names
  owners: list[str] = []
  xs, ys = [], []
  for client_id in client_data.client_ids:
    found = list(client_data.create_tf_dataset_for_client(client_id).as_numpy_iterator())
    if found:
      xs.append(np.stack([example[inputs] for example in found]))
      ys.append(np.stack([example[target] for example in found]))
      owners += [client_id] * len(found)
  if not owners:
    raise errors.DataError('the ClientData has no examples')
  y = np.concatenate(ys)
  if y.dtype.kind in 'OS':  # TensorFlow's texts.
    y = np.asarray([t.decode() if isinstance(t, bytes) else t for t in y.tolist()], dtype=object)
  return np.concatenate(xs), y, np.asarray(owners, dtype=object)
