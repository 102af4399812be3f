"""Settings of folders, evaluations, checkpoints and trackers."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive_tasks import catalog

from .. import fields
from . import what

_TRACKERS = {'mlflow': 'MLflow', 'wandb': 'Weights & Biases'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output(fields.Group):
  """The settings of folders and files; see `--help`."""

  TITLE = 'What it reads and writes'
  CHANGES_NUMBERS = False

  output_dir: str = fields.flag(
    "The run's folder. A run in it is resumed. Default runs/TASK_ALGORITHM.",
  )
  data_dir: str | None = fields.flag(
    "Folder with the task's files. Default: they are downloaded; FLamby's tasks need a folder."
  )
  rounds_per_evaluation: int = fields.count('Rounds between evaluations.', 10)
  virtual_seconds_per_evaluation: float | None = fields.number(
    'Evaluate by the virtual clock, not by rounds: after the first round that ends at or after'
    ' each multiple of this number of virtual seconds. Needs --availability or a similar flag.',
    validation.above_zero,
    instead_of='rounds_per_evaluation',
  )
  rounds_per_checkpoint: int = fields.count('Rounds between checkpoints.', 50)
  log_to: tuple[str, ...] = fields.flag(
    'Also log the run to mlflow or wandb (Weights & Biases); may be repeated. These variables say'
    ' where: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, WANDB_MODE, WANDB_PROJECT.',
    [],
  )
  resume_from: str = fields.flag(
    'The checkpoint to resume from: latest or previous. Later rounds are repeated.',
    'latest',
    choices=('latest', 'previous'),
  )
  accept_lost_rows: bool | None = fields.flag(
    'Resume a run whose metrics.csv was deleted or lacks rows. The model is that of the whole run;'
    ' the rows are lost.'
  )
  metric: str | None = fields.flag(
    "The metric by which displays, --target, sweeps and reports judge. Default: the task's. If the"
    ' model has it not yet it is added: balanced_accuracy, f1_macro, precision_macro, recall_macro,'
    ' top_5_accuracy; for two classes f1, precision, recall, auc_roc, auc_pr; for numbers r2,'
    ' mean_absolute_error, root_mean_squared_error, quantile_loss_0.9.'
  )
  target: float | None = fields.number(
    "Record in summary.json when the task's validation metric first reached this value: the round,"
    ' megabytes and virtual seconds.',
    validation.real,
  )
  stop_at_target: bool | None = fields.flag(
    'End the run at the evaluation that reaches the target. The run is then complete.',
    needs='target',
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default output_dir: runs/TASK_ALGORITHM, with NAME for a task FILE.py:NAME."""
    task, algorithm = values['task'].rpartition(':')[2], what.folder_name(values['algorithm'])
    return {'output_dir': os.path.join('runs', f'{task}_{algorithm}')}

  def check(self, settings: 'fields.Settings') -> None:
    """Raises ValueError for a tracker that is unknown or not installed."""
    for name in self.log_to:
      fields.check_name('log_to', name, tuple(_TRACKERS))
      if importlib.util.find_spec(name) is None:
        raise ValueError(
          f'--log_to={name}: {_TRACKERS[name]} is not installed: pip install tff-adaptive[{name}]'
        )

  def build(self, run_id: str, parameters: Mapping[str, Any]) -> list[Any]:
    """Returns the callbacks of the trackers; they log `parameters`, the settings in config.json."""
    from tff_adaptive import training

    kinds: dict[str, Any] = {'mlflow': training.MlflowCallback, 'wandb': training.WandbCallback}
    name = os.path.basename(os.path.normpath(self.output_dir))
    known = {k: v for k, v in parameters.items() if v is not None and v != []}
    return [kinds[tracker](run_id, name, known) for tracker in dict.fromkeys(self.log_to)]


def check_data_dir(task: str, folder: str | None) -> None:
  """Raises ValueError for a --data_dir that is not a folder, or that the task does not use."""
  if folder is None:
    return
  if task in catalog.OFFLINE:
    raise ValueError(
      f'--data_dir has no meaning for --task={task}, which has no files: leave it out.'
    )
  if not os.path.isdir(folder):
    raise ValueError(f'--data_dir={folder}: there is no such folder; give an existing one.')
