"""Parses the options, NAME=VALUE, of flags that may be repeated."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import option_values


def parse(flag: str, pairs: Sequence[str]) -> dict[str, Any]:
  """Parses NAME=VALUE texts to bools, numbers and texts by name. Raises ValueError for bad ones."""
  result: dict[str, Any] = {}
  for pair in pairs:
    name, equals, text = pair.partition('=')
    # In a chain the name may have its part's name before it.
    is_name = name.isidentifier() or (
      flag == 'algorithm_option' and re.fullmatch(r'[\w.-]+\.[^\W\d]\w*', name)
    )
    if not is_name or not equals or not text:
      raise ValueError(f'--{flag}={pair}: write it as NAME=VALUE, such as alpha=0.3.')
    if flag == 'task_option' and name in ('name', 'seed', 'data_dir'):
      raise ValueError(f'--{flag}={pair} is not a task option: give --task, --seed or --data_dir.')
    result[name] = option_values.value(text)
  return result


def pairs(values: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns options as NAME=VALUE, which `parse` reads. Options that are None are left out."""
  return tuple(
    f'{name}={str(value).lower() if isinstance(value, bool) else value}'
    for name, value in values.items()
    if value is not None
  )
