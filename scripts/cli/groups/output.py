"""Where data come from and results go: folders, evaluations, checkpoints and trackers."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import validation
from tff_adaptive_tasks import catalog

from .. import fields

if TYPE_CHECKING:
  from .. import settings as settings_lib

_TRACKERS = {'mlflow': 'MLflow', 'wandb': 'Weights & Biases'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output(fields.Group):
  """The settings of folders and files; see `--help` for what each means."""

  TITLE = 'What it reads and writes'

  output_dir: str = fields.flag(
    "The run's folder; a run found there is resumed. Default runs/TASK_ALGORITHM.",
    changes_numbers=False,
  )
  data_dir: str | None = fields.flag(
    "Folder with the task's files; default: TFF's download.", changes_numbers=False
  )
  rounds_per_evaluation: int = fields.count(
    'Rounds from one evaluation to the next.', 10, changes_numbers=False
  )
  rounds_per_checkpoint: int = fields.count(
    'Rounds from one checkpoint to the next.', 50, changes_numbers=False
  )
  keep_checkpoints: int = fields.count(
    'The last so many checkpoints are kept: the previous one is there if the latest is damaged.',
    2,
    high=100,
    changes_numbers=False,
  )
  log_to: tuple[str, ...] = fields.flag(
    'Log the run to mlflow or wandb (Weights & Biases) too; may be repeated. Their own variables'
    ' say where: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, WANDB_MODE, WANDB_PROJECT.',
    [],
    changes_numbers=False,
  )
  resume_from: str = fields.flag(
    'The checkpoint to resume from: latest or previous. Rounds after it are done again.',
    'latest',
    choices=('latest', 'previous'),
    changes_numbers=False,
  )
  target: float | None = fields.number(
    "summary.json says when the task's metric on the validation data first was so good: by round,"
    ' megabytes and virtual seconds.',
    validation.real,
    0.9,
    changes_numbers=False,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """A folder named after task and algorithm; of FILE.py:NAME the name."""
    task, algorithm = (str(values[name]).rpartition(':')[2] for name in ('task', 'algorithm'))
    return {'output_dir': os.path.join('runs', f'{task}_{algorithm}')}

  def check(self, settings: 'settings_lib.Settings') -> None:
    """Refuses a tracker that is unknown, given twice or not installed."""
    del settings
    for name in self.log_to:
      fields.check_name('log_to', name, tuple(_TRACKERS))
      if importlib.util.find_spec(name) is None:
        raise ValueError(
          f'--log_to={name}: {_TRACKERS[name]} is not installed: pip install tff-adaptive[{name}]'
        )
    if len({*self.log_to}) < len(self.log_to):
      raise ValueError(f'--log_to={self.log_to[-1]} is given twice: once is enough.')

  def build(self, run_id: str, parameters: Mapping[str, Any]) -> list[Any]:
    """Returns the callbacks of the trackers; parameters are the settings of config.json."""
    from tff_adaptive import training

    kinds: dict[str, Any] = {'mlflow': training.MlflowCallback, 'wandb': training.WandbCallback}
    name = os.path.basename(os.path.normpath(self.output_dir))
    known = {k: v for k, v in parameters.items() if v is not None and v != []}
    return [kinds[tracker](run_id, name, known) for tracker in self.log_to]


def check_data_dir(task: str, folder: str | None) -> None:
  """Refuses a --data_dir that is no folder, or is for a task without files; ValueError."""
  if folder is None:
    return
  if task in catalog.OFFLINE:
    raise ValueError(
      f'--data_dir has no meaning for --task={task}, which has no files: leave it out.'
    )
  if not os.path.isdir(folder):
    raise ValueError(f'--data_dir={folder}: there is no such folder; leave it out to download.')
