"""Stores in a run's folder what an export needs, so that the folder can be exported anywhere."""

import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import error_text, temporary_folders
from tff_adaptive._utils.weight_groups import NamedWeight
from tff_adaptive.models import stored
from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks


class StoreModel(callbacks.Callback):
  """A callback that writes the folder `model` of a run when the run begins or is resumed.

  A resumed run writes it anew, because its checkpoint is trained with the preparation of now.
  """

  def __init__(self, model: Any, description: Mapping[str, Any], preparation: Any):
    """Creates the callback from the arguments of `models.store_model`."""
    self._model = model
    self._description = description
    self._preparation = preparation

  def begin(self, run: callbacks.RunInfo) -> None:
    """Writes the folder. A model that cannot be stored is exported by its task, as before."""
    if run.output_dir is None:
      return
    path = os.path.join(run.output_dir, stored.FOLDER)
    with saving(path), temporary_folders.folder('.model.', run.output_dir) as temporary:
      new = os.path.join(temporary, 'new')
      os.mkdir(new)
      try:
        stored.store_model(self._model, new, self._description, self._preparation)
      except OSError:
        raise
      except Exception as error:  # Training does not depend on it.
        reason = error_text.in_brief(error)
        run.say(f'The model is not stored for exports ({reason}): they will need the data.')
        return
      # A folder cannot replace another. The old one goes with the temporary folder.
      if os.path.isdir(path):
        os.rename(path, os.path.join(temporary, 'old'))
      os.rename(new, path)


def description(task: Any, model: Any) -> dict[str, Any]:
  """Returns what an exported model says about a task, and the kinds of its model's weights."""
  from tff_adaptive.client import model_adapters

  named = model_adapters.wrap(model).named_weights()
  kinds = [[weight.name, sorted(weight.kinds)] for weight in named]
  return {'task': task.name, 'source': task.source, 'metric': task.metric, 'kinds': kinds}


def named_weights(model: Any) -> tuple[NamedWeight, ...] | None:
  """Returns the weights of a stored model by name and kind.

  None of a model that is not stored, or was stored by an earlier release.
  """
  if not isinstance(model, stored.StoredModel) or 'kinds' not in model.description:
    return None
  kinds = model.description['kinds']
  weights, _ = model.initial_weights
  named = []
  for (name, of_weight), weight in zip(kinds, weights, strict=True):
    named.append(NamedWeight(name, weight.shape, frozenset(of_weight)))
  return tuple(named)


def of_run(folder: str) -> stored.StoredModel | None:
  """Returns the stored model of a run; None for a run of an earlier release.

  Raises:
    ValueError: If it cannot be read.
  """
  try:
    return stored.load_stored_model(os.path.join(folder, stored.FOLDER))
  except FileNotFoundError:
    return None
