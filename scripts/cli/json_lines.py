"""Prints each round of a run as a line of JSON on standard output, for other programs."""

import json
import math
from collections.abc import Mapping
from typing import Any

from tff_adaptive.training import callbacks

from . import command


class JsonLines(callbacks.Callback):
  """A callback that prints one JSON object for each recorded round: the row of metrics.csv."""

  may_load_ahead = True

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Prints a row. Numbers that are not finite, which JSON lacks, become null."""
    values = {name: _finite(value) for name, value in row.items()}
    command.show(json.dumps(values, allow_nan=False) + '\n')


def _finite(value: Any) -> int | float | str | None:
  """Returns a value as JSON has it: a Python number, a text, or None if it is not finite."""
  if isinstance(value, str):
    return value
  number = float(value)
  if not math.isfinite(number):
    return None
  if number.is_integer():  # Rounds and counts.
    return int(number)
  return number
