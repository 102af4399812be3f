"""Settings of folders, evaluations, checkpoints and trackers."""

import dataclasses
import hashlib
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import user_code, validation

from .. import command, fields
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
  config: str | None = fields.flag(
    'Repeat the run of this config.json, RUN/config.json, with its settings and its own files. The'
    ' folder is then RUN_repeated, unless --output_dir names another. Of the other flags only those'
    ' that do not change the numbers may be given.'
  )
  accept_other_versions: bool | None = fields.flag(
    'Repeat a run although versions of packages have changed since. The last bits may differ.',
    needs='config',
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
    ' auc_roc_macro, auc_pr_macro, top_5_accuracy; for several labels also exact_match, f1_micro;'
    ' for two classes f1, precision, recall, auc_roc, auc_pr; for numbers r2,'
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
  json: bool | None = fields.flag(
    'Print a JSON object for each round on standard output: its row of metrics.csv. All else goes'
    ' to standard error.'
  )
  quiet: bool | None = fields.flag('Print only the last line and errors.')

  early_stop: str | None = fields.flag(
    'End the run, which is then complete, if this metric (such as loss), or column of metrics.csv,'
    ' has not become better for --patience evaluations.'
  )
  patience: int = fields.count('Evaluations without a better value.', 10, needs='early_stop')
  min_delta: float = fields.number(
    'By how much a value has to be better than the best before.',
    validation.at_least_zero,
    0.0,
    needs='early_stop',
  )
  keep_best: bool | None = fields.flag(
    "Keep the weights of the best evaluation, by --early_stop or the task's metric, in"
    ' checkpoints/best.npz.'
  )
  ledger: bool | None = fields.flag(
    'Write a ledger: a row for each client and round, with steps, loss, norms of updates, bytes,'
    ' seconds and what became of the client, in Parquet files in the folder ledger.'
  )
  full_ledger: bool | None = fields.flag(
    "Also write each client's losses before and after training and the norm of its gradient, on all"
    ' of its examples (three more passes, which costs do not count), and the cosine of its update'
    ' to the aggregate.',
    needs='ledger',
  )
  trace_client: str | None = fields.flag(
    'The id of a client whose local steps are written to the folder trace: loss, norms of gradient'
    ' and weights, and the distance from the first weights. It trains twice for that.'
  )
  max_megabytes: float | None = fields.number(
    'End the run, which is then complete, after the round in which all clients together have'
    ' received and sent this many megabytes.',
    validation.above_zero,
  )
  max_gradients: float | None = fields.number(
    'The same for the number of batch gradients.', validation.above_zero
  )
  max_virtual_seconds: float | None = fields.number(
    'The same for virtual seconds. Needs --availability or a similar flag.',
    validation.above_zero,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default output_dir: runs/TASK_ALGORITHM.

    A task FILE.py:NAME is FILE_NAME there, because NAME is `load` in most files.
    """
    folder = f'{_task_folder(values["task"])}_{what.folder_name(values["algorithm"])}'
    return {'output_dir': os.path.join('runs', folder)}

  def check(self) -> None:
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
    given = {key: value for key, value in parameters.items() if value is not None and value != []}
    return [kinds[tracker](run_id, name, given) for tracker in dict.fromkeys(self.log_to)]

  def say(self, line: str) -> None:
    """Writes a line on the run's progress to standard error, unless --quiet is given."""
    if not self.quiet:
      command.say(line)


def _task_folder(name: str) -> str:
  """Returns the name of a task for folders; FILE_NAME for a user's FILE.py:NAME.

  Files of the same name in several folders are told from each other by a digest of their paths.
  """
  if not user_code.is_reference(name):
    return name
  path, _, attribute = name.rpartition(':')
  path = os.path.abspath(os.path.expanduser(path))
  folder, file = os.path.split(path)
  text = f'{file.removesuffix(".py")}_{attribute}'
  # In the current folder there is one file of the name.
  if folder != os.getcwd():
    text += f'_{hashlib.sha256(os.fsencode(path)).hexdigest()[:6]}'
  return text
