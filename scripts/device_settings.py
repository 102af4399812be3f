"""Checks of the flags that say on what, and how, the graph engine computes."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive import cuda, names

PRECISIONS = ('bfloat16', 'float16')


def check(settings: Mapping[str, Any]) -> None:
  """Refuses a device that cannot be had, and what does not go together.

  Args:
    settings: Flag name -> value, None where none was given.

  Raises:
    ValueError: With one line that names the flag, the value and the mend.
  """
  for flag, valid in (('device', cuda.DEVICES), ('mixed_precision', PRECISIONS)):
    if settings[flag] is not None and settings[flag] not in valid:
      raise ValueError(f'--{flag}: {names.unknown(flag, settings[flag], valid)}')
  if settings['device'] != 'gpu':
    return
  for flag in ('workers', 'engine'):
    if settings[flag] not in (None, 'graph'):
      raise ValueError(
        f"--device=gpu does not go with --{flag}={settings[flag]}: TFF's worker is built without"
        ' CUDA. Leave one of them out.'
      )
  try:
    cuda.check_libraries()
  except ValueError as error:
    raise ValueError(f'--device=gpu: {error}, with --device=cpu.') from None
