"""Checks of the flags that say on what, and how, the graph engine computes."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import suggestions
from tff_adaptive.devices import cuda

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
