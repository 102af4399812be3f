"""Parses the options, NAME=VALUE, of flags that may be repeated."""

from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import option_values


def parse(flag: str, pairs: Sequence[str]) -> dict[str, Any]:
  """Parses NAME=VALUE texts to bools, numbers and texts by name. Raises ValueError for bad ones."""
  result: dict[str, Any] = {}
  for pair in pairs:
    name, equals, text = pair.partition('=')
    own_name = name
    if flag == 'algorithm_option':  # In a chain the name may have its part's name before it.
      own_name = name.rpartition('.')[2]
    if not own_name.isidentifier() or not equals or not text:
      raise ValueError(f'--{flag}={pair}: write it as NAME=VALUE, such as alpha=0.3.')
    if flag == 'task_option' and name in ('name', 'seed', 'data_dir'):
      raise ValueError(f'--{flag}={pair} is not a task option: give --task, --seed or --data_dir.')
    result[name] = option_values.value(text)
  return result


def pairs(values: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns options as NAME=VALUE, which `parse` reads. Options that are None are left out."""
  texts = []
  for name, value in values.items():
    text = str(value)
    if isinstance(value, bool):
      # As on a command line: true, not Python's True.
      text = text.lower()
    if value is not None:
      texts.append(f'{name}={text}')
  return tuple(texts)
