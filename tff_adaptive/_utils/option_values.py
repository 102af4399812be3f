"""Parses the values of options NAME=VALUE."""

import math


def value(text: str) -> bool | int | float | str:
  """Converts a text to the bool or number that it spells. Other texts, and nan, stay texts."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  for kind in (int, float):
    try:
      number = kind(text)
    except ValueError:
      continue
    if isinstance(number, float) and math.isnan(number):
      return text  # NaN would equal no other value, not even itself.
    return number
  return text
