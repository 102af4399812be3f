"""Flags as fields of frozen dataclasses: the groups that the settings are made of."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tff_adaptive._utils import suggestions, validation

if TYPE_CHECKING:
  from .settings import Settings as Settings

INT31 = 2**31 - 1


class Group:
  """A group of settings: a frozen dataclass whose fields are flags.

  Attributes:
    TITLE: What heads them in --help.
    CHANGES_NUMBERS: Whether its flags touch the model's course, where a flag does not say itself.
  """

  TITLE: ClassVar[str]
  CHANGES_NUMBERS: ClassVar[bool] = True

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of flags that depend on other values, None where none was given; none here."""
    del values
    return {}

  def check(self, settings: 'Settings') -> None:
    """Refuses values that do not go together; ValueError, in one line with the flag's name."""


def flag(
  text: str,
  default: Any = None,
  check: Callable[[str, Any], Any] | None = None,
  *,
  choices: Sequence[str] = (),
  needs: str = '',
  instead_of: str = '',
  changes_numbers: bool = True,
) -> Any:
  """A field that is a flag.

  Args:
    text: Its help.
    default: Its default; None: `resolve` decides, or there is none.
    check: Refuses bad values, given the flag as it is written.
    choices: The names that it takes, if it takes no others.
    needs: The flag without which it has no meaning, or FLAG=VALUE or VALUE.
    instead_of: The flag that it stands in place of: only one of them may be given.
    changes_numbers: Whether it touches the model's course; a resumed run may change what does not.
  """
  metadata = dict(help=text, default=default, check=check, choices=choices)
  metadata |= dict(needs=needs, instead_of=instead_of, changes_numbers=changes_numbers)
  value = tuple(default) if isinstance(default, list) else default
  return dataclasses.field(default=value, metadata=metadata)


def count(
  text: str, default: Any = None, *, zero: str = '', low: int = 1, high: int = INT31, **more: Any
) -> Any:
  """A flag of whole numbers up to `high`; from `low`, or from 0 if that stands for something."""
  low, hint = (0, f'give 0 for {zero}') if zero else (low, f'give {low} or more')
  check = functools.partial(validation.whole_number, low=low, hint=hint, high=high)
  return flag(text, default, check, **more)


def number(
  text: str, check: validation.Check, example: float, default: Any = None, **more: Any
) -> Any:
  """A field that is a flag of numbers, which `check` refuses unless they are like the example."""
  hint = f'give a number such as {example:g}'
  return flag(text, default, lambda name, value: check(name, value, hint), **more)


def check_others(
  field: dataclasses.Field, values: Mapping[str, Any], given: Container[str]
) -> None:
  """Refuses a flag that has no meaning with the others; ValueError, in one line."""
  name, needs, other = field.name, field.metadata['needs'], field.metadata['instead_of']
  if name not in given:
    return
  needed, _, wanted = needs.partition('=')
  if needs and (values[needed] is None or (wanted and values[needed] not in wanted.split(' or '))):
    raise ValueError(f'--{name} is for --{needs}: give it too, or leave this one out.')
  if other in given:
    raise ValueError(f'--{name} stands in place of --{other}: leave one of them out.')


def check(field: dataclasses.Field, value: Any) -> None:
  """Refuses a value that a flag does not take; ValueError, in one line."""
  if value is None:
    return
  choices, check_value = field.metadata['choices'], field.metadata['check']
  if choices:
    check_name(field.name, value, choices)
  if check_value is not None:
    with about(field.name):
      check_value(f'--{field.name}', value)


@contextlib.contextmanager
def about(flag_name: str) -> Iterator[None]:
  """Has TypeError and ValueError begin with the flag that they are about; ValueError."""
  try:
    yield
  except (TypeError, ValueError) as error:
    text = str(error)
    raise ValueError(text if text.startswith('--') else f'--{flag_name}: {text}') from None


def check_name(flag_name: str, value: Any, valid: Collection[str]) -> None:
  """Refuses a name that is not among the valid ones; ValueError, in one line."""
  if value not in valid:
    raise ValueError(f'--{flag_name}: {suggestions.unknown(flag_name, value, valid)}')
