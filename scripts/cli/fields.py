"""Declares flags as fields of frozen dataclasses, which are the groups of settings."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from tff_adaptive._utils import suggestions, validation

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

  def check(self) -> None:
    """Raises a ValueError that names a flag if a value, or what it names, cannot be used.

    What flags have to do with each other is in `rules`.
    """


class Needs(NamedTuple):
  """What a flag needs: that `flag` is given, and is one of `values` if there are any."""

  flag: str
  values: tuple[str, ...] = ()

  def __str__(self) -> str:
    if not self.values:
      return self.flag
    return f'{self.flag}={" or ".join(self.values)}'

  def are_met(self, values: Mapping[str, Any]) -> bool:
    """Returns whether flags with these values by name have what is needed."""
    value = values[self.flag]
    return value is not None and (not self.values or value in self.values)


def flag(
  text: str,
  default: Any = None,
  check: Callable[[str, Any], Any] | None = None,
  *,
  choices: Sequence[str] = (),
  needs: Needs | str | None = None,
  instead_of: str = '',
  changes_numbers: bool = True,
) -> Any:
  """Declares a field that is a flag.

  Args:
    text: The help of the flag.
    default: The default. None if it depends on other flags, or if there is none.
    check: A function of '--name' and the value, which raises ValueError for a bad value.
    choices: The allowed values. If empty, all values are allowed.
    needs: What this flag needs: another flag by name, or `Needs` with the values of one.
    instead_of: The flag that this one replaces. Only one of them may be given.
    changes_numbers: Whether the flag changes the trained model; else a resumed run may change it.
  """
  if isinstance(needs, str):
    needs = Needs(needs)
  metadata = {
    'help': text,
    'default': default,
    'check': check,
    'choices': choices,
    'needs': needs,
    'instead_of': instead_of,
    'changes_numbers': changes_numbers,
  }
  # A field must not have a list, which all instances would share.
  value = tuple(default) if isinstance(default, list) else default
  return dataclasses.field(default=value, metadata=metadata)


def count(
  text: str, default: Any = None, *, zero: str = '', low: int = 1, high: int = INT31, **more: Any
) -> Any:
  """Declares an integer `flag` from `low`, or from 0 if `zero` says what 0 means, to `high`."""
  hint = f'give {low} or more'
  if zero:
    low = 0
    hint = f'give 0 for {zero}'
  check = functools.partial(validation.whole_number, low=low, hint=hint, high=high)
  return flag(text, default, check, **more)


def number(text: str, check: validation.Check, default: Any = None, **more: Any) -> Any:
  """Declares a flag that is a number. `check` (see `validation`) refuses numbers out of range."""
  hint = 'give such a number, or leave it out'
  return flag(text, default, lambda name, value: check(name, value, hint), **more)


def check(field: dataclasses.Field, values: Mapping[str, Any], given: Container[str]) -> None:
  """Raises ValueError if a flag's value is bad, or its `needs` or `instead_of` is not respected."""
  name = field.name
  value = values[name]
  declared = field.metadata
  if value is not None:
    if declared['choices']:
      check_name(name, value, declared['choices'])
    if declared['check'] is not None:
      with about(name):
        declared['check'](f'--{name}', value)
  if name not in given:
    return
  needs: Needs | None = declared['needs']
  if needs is not None and not needs.are_met(values):
    raise ValueError(f'--{name} needs --{needs}: give that, or leave --{name} out.')
  replaced = declared['instead_of']
  if replaced in given:
    raise ValueError(f'--{name} stands in place of --{replaced}: leave one of them out.')


@contextlib.contextmanager
def about(flag_name: str) -> Iterator[None]:
  """A context in which TypeErrors and ValueErrors become a ValueError that names the flag."""
  try:
    yield
  except (TypeError, ValueError) as error:
    text = str(error)
    if not text.startswith('--'):
      text = f'--{flag_name}: {text}'
    raise ValueError(text) from None


def check_name(flag_name: str, value: Any, valid: Collection[str]) -> None:
  """Raises ValueError, with a suggestion, if a flag's value is not a valid name."""
  if value not in valid:
    raise ValueError(f'--{flag_name}: {suggestions.unknown(flag_name, value, valid)}')
