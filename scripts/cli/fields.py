"""Fields of the settings that are flags."""

import dataclasses
from typing import Any

from tff_adaptive._utils import validation

INT31 = 2**31 - 1
ONE = 'give 1 or more'


def flag(
  group: str,
  text: str,
  default: Any = None,
  check: validation.Check | None = None,
  hint: str = '',
  changes_numbers: bool = True,
) -> Any:
  """A field that is a flag.

  Args:
    group: Its heading in --help.
    text: Its help.
    default: Its default; None: `resolve` decides, or there is none.
    check: Refuses bad values.
    hint: What to give instead of them.
    changes_numbers: Whether it touches the model's course; what does not a resumed run may change.
  """
  metadata = dict(
    group=group, help=text, default=default, check=check, hint=hint, changes_numbers=changes_numbers
  )
  return dataclasses.field(metadata=metadata)


def from_(low: int, high: int = INT31) -> validation.Check:
  def check(name: str, value: Any, hint: str) -> Any:
    validation.whole_number(name, value, low, hint, high)
    return value

  return check
