"""Flags as fields of frozen dataclasses: the groups that the settings are made of."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tff_adaptive._utils import suggestions, validation

if TYPE_CHECKING:
  from . import settings as settings_lib

INT31 = 2**31 - 1


class Group:
  """A group of settings: a frozen dataclass whose fields are flags; TITLE heads them in --help."""

  TITLE: ClassVar[str]

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of flags that depend on other values, None where none was given; none here."""
    del values
    return {}

  def check(self, settings: 'settings_lib.Settings') -> None:
    """Refuses values that do not go together; ValueError, in one line with the flag's name."""


def flag(
  text: str,
  default: Any = None,
  check: validation.Check | None = None,
  hint: str = '',
  *,
  choices: Sequence[str] = (),
  needs: str = '',
  changes_numbers: bool = True,
) -> Any:
  """A field that is a flag.

  Args:
    text: Its help.
    default: Its default; None: `resolve` decides, or there is none.
    check: Refuses bad values.
    hint: What to give instead of them.
    choices: The names that it takes, if it takes no others.
    needs: The flag without which it has no meaning.
    changes_numbers: Whether it touches the model's course; a resumed run may change what does not.
  """
  metadata = dict(
    help=text,
    default=default,
    check=check,
    hint=hint,
    choices=choices,
    needs=needs,
    changes_numbers=changes_numbers,
  )
  return dataclasses.field(metadata=metadata)


def count(text: str, default: Any = None, *, zero: str = '', high: int = INT31, **more: Any) -> Any:
  """A flag of whole numbers up to `high`; from 1, or from 0 if that stands for something."""
  low, hint = (0, f'give 0 for {zero}') if zero else (1, 'give 1 or more')

  def check(name: str, value: Any, hint: str) -> Any:
    validation.whole_number(name, value, low, hint, high)
    return value

  return flag(text, default, check, hint, **more)


def number(
  text: str, check: validation.Check, example: float, default: Any = None, **more: Any
) -> Any:
  """A field that is a flag of numbers, which `check` refuses unless they are like the example."""
  return flag(text, default, check, f'give a number such as {example:g}', **more)


def check(field: dataclasses.Field, value: Any) -> None:
  """Refuses a value that a flag does not take; ValueError, in one line."""
  if value is None:
    return
  choices, check_value = field.metadata['choices'], field.metadata['check']
  if choices:
    check_name(field.name, value, choices)
  if check_value is not None:
    try:
      check_value(f'--{field.name}', value, field.metadata['hint'])
    except TypeError as error:
      raise ValueError(str(error)) from None


def check_name(flag_name: str, value: Any, valid: Collection[str]) -> None:
  """Refuses a name that is not among the valid ones; ValueError, in one line."""
  if value not in valid:
    raise ValueError(f'--{flag_name}: {suggestions.unknown(flag_name, value, valid)}')
