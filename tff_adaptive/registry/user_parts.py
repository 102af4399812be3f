"""Loads a part of a run from a user's own file, 'FILE.py:NAME', with its options.

NAME is a class, whose fields are the options (of a dataclass) or the arguments of its constructor;
or a function, whose arguments with defaults are the options. Cohorts, aggregators, availabilities,
speeds, factors of staleness and schedules are loaded so.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import user_code
from tff_adaptive._utils.hyperparameters import Hyperparameter, declared_by
from tff_adaptive.registry import entries, user_entries


@dataclasses.dataclass(frozen=True)
class UserPart(entries.WithHyperparameters):
  """A part of a run that a user's file defines.

  Attributes:
    name: NAME.
    definition: The class or function.
    source: The file, with the modules that it imports.
    hyperparameters: Its options.
  """

  name: str
  definition: Callable[..., Any]
  source: user_code.UserCode
  hyperparameters: tuple[Hyperparameter, ...] = ()

  def build(self, given: Mapping[str, Any] | None = None) -> Any:
    """Returns the object of a class, or the function with its options.

    Raises:
      TypeError: If an option has the wrong type.
      ValueError: If there is no such option, or the class refuses it.
    """
    values = self.values(given or {})
    if isinstance(self.definition, type):
      return self.definition(**values)
    if not values:
      return self.definition
    bound = functools.partial(self.definition, **values)
    # What a function declares in attributes, such as what it needs.
    bound.__dict__.update(vars(self.definition))
    bound.__dict__['__name__'] = self.name
    return bound


def load(reference: str, wanted: str) -> UserPart:
  """Returns the part at a reference.

  Args:
    reference: 'FILE.py:NAME'.
    wanted: What it must be, for messages, such as 'a function of a population.Situation'.

  Raises:
    ValueError: If it cannot be loaded, is neither a class nor a function, or has an option without
      a default or of another type than float, int, bool or str. The message has one line.
  """
  definition, source = user_code.load(reference)
  try:
    if not callable(definition):
      raise ValueError(f'is {type(definition).__name__}: give {wanted}')
    return UserPart(source.name, definition, source, _options(definition))
  except KeyboardInterrupt:
    raise
  except BaseException as error:  # The user's annotations and attributes may raise.
    words: Any = error
    if type(error) is not ValueError:
      words = f'cannot be used: {user_code.in_words(error)}'
    raise ValueError(f'{source.name} of {source.path!r} {words}.') from error


def _options(definition: Any) -> tuple[Hyperparameter, ...]:
  """Returns the options of a class or function: its arguments with defaults."""
  declared = {h.name: h for h in declared_by(definition)}
  annotated = definition
  if isinstance(definition, type):
    # A class has the annotations of its fields; those of its arguments are its constructor's.
    annotated = inspect.getattr_static(definition, '__init__')
  types = typing.get_type_hints(annotated)
  options = []
  for argument in inspect.signature(definition).parameters.values():
    if argument.name in declared:
      options.append(declared[argument.name])
    elif argument.default is not inspect.Parameter.empty:
      kind = types.get(argument.name, type(argument.default))
      options.append(_option(argument.name, kind, argument.default))
    elif isinstance(definition, type) and argument.kind is argument.POSITIONAL_OR_KEYWORD:
      raise ValueError(f'has the option {argument.name} without a default: give it one')
  return tuple(options)


def _option(name: str, kind: Any, default: Any) -> Hyperparameter:
  if kind is str or typing.get_args(kind) == (str, type(None)):
    return Hyperparameter(name, str, default, name)
  return user_entries.hyperparameter(name, kind, default)
