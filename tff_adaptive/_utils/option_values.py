"""Parses the values of options NAME=VALUE."""

import math


def value(text: str) -> bool | int | float | str:
  """Converts a text to the bool or number that it spells. Other texts, and nan, stay texts."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  for kind in (int, float):
    try:
      found = kind(text)
    except ValueError:
      continue
    return text if isinstance(found, float) and math.isnan(found) else found
  return text
