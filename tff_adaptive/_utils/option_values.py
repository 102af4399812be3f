"""Parses the values of options NAME=VALUE."""

import math


def value(text: str) -> bool | int | float | str:
  """Returns a text as the number or bool that it spells, or else as it is."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  for kind in (int, float):
    try:
      found = kind(text)
    except ValueError:
      continue
    return text if isinstance(found, float) and math.isnan(found) else found
  return text
