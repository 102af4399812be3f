"""What the text of an option NAME=VALUE means."""

import math


def value(text: str) -> bool | int | float | str:
  """Returns the number or truth value that a text writes, or the text."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  for kind in (int, float):
    try:
      found = kind(text)
    except ValueError:
      continue
    return text if isinstance(found, float) and math.isnan(found) else found
  return text
