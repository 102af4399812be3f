"""Checks of the flags that say on what, and how, the graph engine computes."""

import shutil
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import suggestions
from tff_adaptive.devices import cuda
from tff_adaptive_tasks import catalog

PRECISIONS = ('bfloat16', 'float16')


def check(values: Mapping[str, Any]) -> None:
  """Refuses a device that cannot be had, and what does not go together.

  Args:
    values: Flag name -> value, None where none was given.

  Raises:
    ValueError: With one line that names the flag, the value and the hint.
  """
  for flag, valid in (('device', cuda.DEVICES), ('mixed_precision', PRECISIONS)):
    if values[flag] is not None and values[flag] not in valid:
      raise ValueError(f'--{flag}: {suggestions.unknown(flag, values[flag], valid)}')
  if values['device'] != 'gpu':
    return
  if values['engine'] != 'graph':
    raise ValueError(
      f"--device=gpu does not go with --engine={values['engine']}: TFF's worker is built without"
      ' CUDA. Leave one of them out.'
    )
  try:
    cuda.check_libraries()
  except ValueError as error:
    raise ValueError(
      f'--device=gpu: {error}, with --device=cpu. In a checkout, make env-gpu installs them.'
    ) from None


def check_lstm(values: Mapping[str, Any], lstm: Any) -> None:
  """Refuses what the compiled LSTM does not go with.

  Args:
    values: As for `check`.
    lstm: The task's option of that name; None without one.

  Raises:
    ValueError: With one line that names the option, the flag and the hint.
  """
  flag = _against_lstm(values)
  if lstm == 'compiled' and flag is not None:
    raise ValueError(
      f'--task_option=lstm=compiled does not go with {flag}: it is an operation of float32, for'
      ' the graph engine on a CPU. Leave one of them out.'
    )


def lstm_hint(values: Mapping[str, Any], task_options: Mapping[str, Any]) -> str | None:
  """What to say to who trains LSTMs without the compiled operation, though it can be had."""
  if values['task'] not in catalog.WITH_LSTM or 'lstm' in task_options:
    return None
  if _against_lstm(values) is not None or shutil.which('g++') is None:
    return None
  return 'Hint: --task_option=lstm=compiled trains LSTMs 1.6 times as fast on a CPU.'


def _against_lstm(values: Mapping[str, Any]) -> str | None:
  """The flag that the compiled LSTM does not go with, if there is one."""
  given = {
    '--engine=native': values['engine'] != 'graph',
    '--device=gpu': values['device'] == 'gpu',
    '--gpus_per_worker': bool(values['gpus_per_worker']),
    '--mixed_precision': values['mixed_precision'] is not None,
    '--xla': bool(values['xla']),
  }
  return next((flag for flag, is_given in given.items() if is_given), None)
