"""Hyperparameters, declared as fields of a part of an algorithm; the registry collects them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import suggestions, validation, value_text

Value = float | int | bool | str


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
  """A hyperparameter of an algorithm, an optimizer or a schedule.

  Attributes:
    name: Its name, as a flag and as an argument.
    kind: The type of its values: float, int, bool or str.
    default: The default value. None means that it has no fixed default; `help` then explains it.
    help: One sentence that explains it; it names neither the default nor the algorithms.
    check: A function of `_utils.validation`. None checks that a float is finite, an int at least 0,
      and accepts any string.
    hint: The advice in the error for a refused value, such as 'give 0 for none'.
    choices: The allowed values; () allows all values that pass `check`.
    default_with: Other defaults with some server optimizers, by the optimizer's name.
  """

  name: str
  kind: type
  default: Value | None
  help: str
  check: validation.Check | None = None
  hint: str = ''
  choices: tuple[Value, ...] = ()
  # A dict has no hash, which a frozen dataclass makes of all other fields.
  default_with: Mapping[str, Value] = dataclasses.field(default_factory=dict, hash=False)

  def checked(self, value: Any, name: str = '') -> Any:
    """Checks a value and returns it; an integer is converted if a float is expected.

    Args:
      name: The name in the error message, such as '--mu'. By default it is the hyperparameter's.

    Raises:
      TypeError: If the value has the wrong type.
      ValueError: If the value is out of its range.
    """
    name = name or self.name
    hint = self.hint or f'its default is {self.default}'
    if self.kind is bool:
      if not isinstance(value, bool):
        raise TypeError(f'{name} must be true or false, found {value_text.in_text(value)}.')
      return value
    if self.kind is str and self.check is not None:
      value = self.check(name, value, hint)
    if self.kind is not str:
      check = validation.whole if self.kind is int else validation.real
      if self.check is not None:
        check = self.check
      value = self.kind(check(name, value, hint))
    if self.choices and value not in self.choices:
      allowed = ' or '.join(map(str, self.choices))
      raise ValueError(f'{name} must be {allowed}, found {value_text.in_text(value)}: {hint}.')
    return value


@dataclasses.dataclass(frozen=True)
class Counts:
  """The communication and computation of a client in a round; see `tff_adaptive.costs`.

  Attributes:
    down: The data that the client receives, as a multiple of the model's size; 1 is the model. If
      the server sends changes of what clients have, it is what a client receives that was there in
      the round before.
    down_anew: What of `down` belongs to the round alone and is no change, such as what clients
      exchange before they train. A client that was away does not receive that of earlier rounds.
    down_whole: The data that a client receives at most, in the same unit, if the server sends
      changes of what clients have: it is sent all to a client that was away for long. None if the
      server sends no changes.
    up: The data that the client sends, in the same unit; 1 is the update.
    gradients: Number of batch gradients that a local step computes.
    full_gradients: Number of gradients over all of the client's examples in a round.
    uncounted: Names of parts that may send less than counted, because they do not say how much.
  """

  down: float = 1
  up: float = 1
  gradients: int = 1
  full_gradients: int = 0
  uncounted: tuple[str, ...] = ()
  down_whole: float | None = None
  down_anew: float = 0


_DECLARATION = 'hyperparameter'  # The key in a field's metadata.


def option(
  default: Value | None,
  help: str,
  check: validation.Check | None = None,
  hint: str = '',
  choices: tuple[Value, ...] = (),
  default_with: Mapping[str, Value] | None = None,
  kind: type | None = None,
) -> Any:
  """Declares a field of a frozen dataclass as a hyperparameter; see `Hyperparameter`.

  The field's name is the hyperparameter's. `kind` is by default the type of the default value, and
  must be given if that is None.
  """
  # The field's name is not known here; `declared_by` adds it.
  declared = Hyperparameter(
    '', kind or type(default), default, help, check, hint, choices, dict(default_with or {})
  )
  return dataclasses.field(default=default, metadata={_DECLARATION: declared, 'help': help})


def declared_by(kind: type) -> tuple[Hyperparameter, ...]:
  """Returns the hyperparameters that a dataclass declares with `option`, in its fields' order.

  A class can have other defaults than the class that declared a field.
  """
  if not dataclasses.is_dataclass(kind):
    return ()
  declared = []
  for field in dataclasses.fields(kind):
    if _DECLARATION in field.metadata:
      hyperparameter = field.metadata[_DECLARATION]
      declared.append(dataclasses.replace(hyperparameter, name=field.name, default=field.default))
  return tuple(declared)


def values(
  known: Mapping[str, Hyperparameter],
  given: Mapping[str, Any],
  owner: str,
  default: Callable[[str], Any],
) -> dict[str, Any]:
  """Returns all hyperparameters by name: the given values, checked, and defaults for the rest.

  Args:
    known: The hyperparameters by name.
    given: Values by name; None stands for the default.
    owner: The name of what has the hyperparameters, for messages.
    default: A function from a name to the default value.

  Raises:
    TypeError: If a value has the wrong type.
    ValueError: If a name is unknown or a value is out of its range.
  """
  for name in given:
    if name not in known:
      raise ValueError(suggestions.unknown(f'option of {owner}', name, known))
  all_values = {}
  for name, hyperparameter in known.items():
    value = given.get(name)
    if value is None:
      all_values[name] = default(name)
    else:
      all_values[name] = hyperparameter.checked(value)
  return all_values
