"""A run in Weights & Biases: its parameters and, by round, its columns.

wandb is imported as a run begins. Where it goes is its own to say: WANDB_MODE (offline: nothing is
sent), WANDB_DIR, WANDB_ENTITY; WANDB_PROJECT, else tff-adaptive.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive.training import callbacks, tracking

if TYPE_CHECKING:
  from tff_adaptive.training.loop import TrainingResult


class WandbCallback(tracking.Tracker):
  """Logs a run to Weights & Biases; a resumed run has the same id there."""

  service = 'Weights & Biases'

  def __init__(self, run_id: str, name: str, parameters: Mapping[str, Any]):
    """Says what is logged.

    Args:
      run_id: The run's id, also there.
      name: The run's name there.
      parameters: The run's parameters by name; None is left out.
    """
    super().__init__()
    self._run_id, self._name, self._parameters = run_id, name, parameters
    self._run: Any = None

  def open(self, run: callbacks.RunInfo) -> None:
    """Begins the run there, or goes on with it."""
    import wandb

    known = {k: v for k, v in self._parameters.items() if v is not None}
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', tracking.PROJECT),
      id=self._run_id,
      name=self._name,
      config=known,
      # Offline, wandb keeps each part in a folder of its own; syncing joins them by the id.
      resume=None if os.environ.get('WANDB_MODE') == 'offline' else 'allow',
      settings=wandb.Settings(console='off', quiet=True, silent=True),
    )
    del run

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs the columns of a round."""
    self._run.log(dict(values), step=step)

  def finish(self, result: 'TrainingResult | None') -> None:
    """Ends the run there; a run that failed has exit code 1."""
    self._run.finish(exit_code=int(result is None))
