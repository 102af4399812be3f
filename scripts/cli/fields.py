"""Declares flags as fields of frozen dataclasses, which are the groups of settings."""

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
    TITLE: The group's heading in --help.
    CHANGES_NUMBERS: Whether the flags change the trained model; see `changes_numbers` of `flag`.
  """

  TITLE: ClassVar[str]
  CHANGES_NUMBERS: ClassVar[bool] = True

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns defaults that depend on the flags' `values`, by flag name; {} unless overridden."""
    del values
    return {}

  def sources(self) -> dict[str, Any]:
    """Loads the user's own files that flags name. Returns a `user_code.UserCode` by flag."""
    return {}

  def check(self, settings: 'Settings') -> None:
    """Raises a ValueError that names a flag if the group does not go with the other settings."""


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
  """Declares a field that is a flag.

  Args:
    text: The help of the flag.
    default: The default. None if it depends on other flags, or if there is none.
    check: A function of '--name' and the value, which raises ValueError for a bad value.
    choices: The allowed values. If empty, all values are allowed.
    needs: The other flag that this one needs: 'FLAG', 'FLAG=VALUE' or 'FLAG=VALUE or VALUE'.
    instead_of: The flag that this one replaces. Only one of them may be given.
    changes_numbers: Whether the flag changes the trained model; else a resumed run may change it.
  """
  metadata = dict(help=text, default=default, check=check, choices=choices)
  metadata |= dict(needs=needs, instead_of=instead_of, changes_numbers=changes_numbers)
  value = tuple(default) if isinstance(default, list) else default
  return dataclasses.field(default=value, metadata=metadata)


def count(
  text: str, default: Any = None, *, zero: str = '', low: int = 1, high: int = INT31, **more: Any
) -> Any:
  """Declares an integer `flag` from `low`, or from 0 if `zero` says what 0 means, to `high`."""
  low, hint = (0, f'give 0 for {zero}') if zero else (low, f'give {low} or more')
  check = functools.partial(validation.whole_number, low=low, hint=hint, high=high)
  return flag(text, default, check, **more)


def number(text: str, check: validation.Check, default: Any = None, **more: Any) -> Any:
  """Declares a flag that is a number. `check` (see `validation`) refuses numbers out of range."""
  hint = 'give such a number, or leave it out'
  return flag(text, default, lambda name, value: check(name, value, hint), **more)


def check(field: dataclasses.Field, values: Mapping[str, Any], given: Container[str]) -> None:
  """Raises ValueError if a flag's value is bad, or its `needs` or `instead_of` is not respected."""
  name, value, meta = field.name, values[field.name], field.metadata
  if value is not None:
    if meta['choices']:
      check_name(name, value, meta['choices'])
    if meta['check'] is not None:
      with about(name):
        meta['check'](f'--{name}', value)
  if name not in given:
    return
  needs, other = meta['needs'], meta['instead_of']
  needed, _, wanted = needs.partition('=')
  if needs and (values[needed] is None or (wanted and values[needed] not in wanted.split(' or '))):
    raise ValueError(f'--{name} needs --{needs}: give that, or leave --{name} out.')
  if other in given:
    raise ValueError(f'--{name} stands in place of --{other}: leave one of them out.')


@contextlib.contextmanager
def about(flag_name: str) -> Iterator[None]:
  """A context in which TypeErrors and ValueErrors become a ValueError that names the flag."""
  try:
    yield
  except (TypeError, ValueError) as error:
    text = str(error)
    raise ValueError(text if text.startswith('--') else f'--{flag_name}: {text}') from None


def check_name(flag_name: str, value: Any, valid: Collection[str]) -> None:
  """Raises ValueError, with a suggestion, if a flag's value is not a valid name."""
  if value not in valid:
    raise ValueError(f'--{flag_name}: {suggestions.unknown(flag_name, value, valid)}')
