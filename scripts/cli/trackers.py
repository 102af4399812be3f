"""--log_to: the experiment trackers that a run is logged to."""

import importlib.util
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import suggestions

if TYPE_CHECKING:
  from . import settings as settings_lib

_NAMES = {'mlflow': 'MLflow', 'wandb': 'Weights & Biases'}


def check(names: Sequence[str]) -> None:
  """Refuses a tracker that is unknown, given twice or not installed.

  Args:
    names: As of --log_to.

  Raises:
    ValueError: With one line that says what to do.
  """
  for name in names:
    if name not in _NAMES:
      raise ValueError(f'--log_to: {suggestions.unknown("tracker", name, _NAMES)}')
    if importlib.util.find_spec(name) is None:
      raise ValueError(
        f'--log_to={name}: {_NAMES[name]} is not installed: pip install tff-adaptive[{name}]'
      )
  if len({*names}) < len(names):
    raise ValueError(f'--log_to={names[-1]} is given twice: once is enough.')


def callbacks(settings: 'settings_lib.Settings', run_id: str) -> list[Any]:
  """Returns the callbacks of the trackers that the settings name.

  Args:
    settings: Of the run: where they have values, they are its parameters there.
    run_id: The run's, of config.json.
  """
  from tff_adaptive import training

  kinds: dict[str, Any] = {'mlflow': training.MlflowCallback, 'wandb': training.WandbCallback}
  name = os.path.basename(os.path.normpath(settings.output_dir))
  parameters = {k: v for k, v in settings.flat().items() if v is not None and v != []}
  return [kinds[tracker](run_id, name, parameters) for tracker in settings.log_to]
