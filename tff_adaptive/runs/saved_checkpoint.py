"""Reading a run's last checkpoint without its process, and without changing the file."""

import contextlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import SavedStates


class SavedState(NamedTuple):
  """A checkpoint's server state.

  Attributes:
    round_number: Rounds finished.
    leaves: The state's leaves by their names, in the state's order.
  """

  round_number: int
  leaves: Mapping[str, np.ndarray]

  def trainable(self, model: str) -> tuple[np.ndarray, ...]:
    """Returns a model's trainable weights, in the model's order; `()` if there is none.

    Args:
      model: Its name in the server state: 'global_model_weights' or 'inference_weights'.
    """
    for prefix in (f'{model}/trainable/', f'{model}/'):
      if found := tuple(leaf for name, leaf in self.leaves.items() if name.startswith(prefix)):
        return found
    return ()


def read(path: str) -> SavedState:
  """Reads the last checkpoint of a state file.

  Args:
    path: The file.

  Returns:
    The server state.

  Raises:
    StateError: If there is no checkpoint, or it is damaged or in use.
  """
  if not os.path.isfile(path):
    raise StateError(f'there is no checkpoint {path}: the run has not saved one, or it was moved.')
  with contextlib.closing(SavedStates(path)) as file:
    if not file.rounds:
      raise StateError(f'{path} holds no checkpoint yet: let the run go on first.')
    return SavedState(file.rounds[-1], file.read_checkpoint(file.rounds[-1])[1])
