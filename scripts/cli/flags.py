"""The flags of scripts/train.py, made from `Settings` and the registry without TensorFlow."""

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from . import command, fields, hyperparameters, options, rules, settings
from .groups import what

_OF_TASK = ('task', 'task_option', 'seed', 'data_dir')
absl_flags.disclaim_key_flags()  # The flags count as those of the script.


class Flag(NamedTuple):
  """A flag. `group` is its heading in --help, and `kind` is str, int, float, bool or list."""

  group: str
  name: str
  kind: type
  default: Any
  help: str


def table() -> list[Flag]:
  """Returns all flags of train.py in the order of --help."""
  flags = []
  for group, kind in settings.GROUPS.items():
    if group == 'clients':  # The hyperparameters come after the rates.
      for name, h in hyperparameters.named().items():
        flags.append(Flag(h.group, name, h.first.kind, None, h.help()))
    flags += of_group(kind)
  return flags


def of_group(group: type[fields.Group]) -> list[Flag]:
  """Returns the flags of a group of settings."""
  types = typing.get_type_hints(group)
  return [
    Flag(group.TITLE, f.name, _kind(types[f.name]), f.metadata['default'], f.metadata['help'])
    for f in dataclasses.fields(group)  # type: ignore[arg-type]
  ]


def define_with_task(group: type[fields.Group]) -> absl_flags.FlagValues:
  """Returns the flags in `group`, and train.py's --task, --task_option, --seed and --data_dir."""
  of_task = [flag for flag in table() if flag.name in _OF_TASK]
  return define([*of_group(group), *of_task])


def check(flags: absl_flags.FlagValues, group: type[fields.Group]) -> Any:
  """Returns the flags of a command as an instance of `group`. Raises ValueError for bad values."""
  given = {name for name in flags if flags[name].present}
  of_group: tuple[dataclasses.Field, ...] = dataclasses.fields(group)  # type: ignore[arg-type]
  values = {field.name: flags[field.name].value for field in of_group}
  for field in of_group:
    fields.check(field, values, given)
  return group(**values)


def check_with_task(values: absl_flags.FlagValues, group: type[fields.Group]) -> dict[str, Any]:
  """Checks the flags of `define_with_task` like `check`. Returns the task's options by name."""
  what.check_task(values.task)
  check(values, group)
  seed = next(f for f in settings.FIELDS if f.name == 'seed')
  fields.check(seed, {'seed': values.seed}, ())
  rules.check_data_dir(values.task, values.data_dir)
  return options.parse('task_option', values.task_option)


def load_task(values: absl_flags.FlagValues, options: Mapping[str, Any]) -> Any:
  """Loads the task that the flags name, with `options` of `check_with_task`. Imports TensorFlow."""
  import tff_adaptive_tasks as tasks

  return tasks.load(values.task, data_dir=values.data_dir, seed=values.seed, **options)


def define(flags: Iterable[Flag]) -> absl_flags.FlagValues:
  """Returns a new `FlagValues` of `flags`; absl's global one is not used."""
  # Own values, so that two commands in one process, such as a sweep and its runs, share no flags.
  values = absl_flags.FlagValues()
  definers: dict[type, Callable[..., Any]] = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_boolean,
    list: absl_flags.DEFINE_multi_string,
  }
  for flag in flags:
    definers[flag.kind](flag.name, flag.default, flag.help, flag_values=values)
  return values


def parse(
  arguments: Sequence[str], help_text: Callable[[str], str] | None = None
) -> dict[str, Any] | None:
  """Parses train.py's command line, which begins with the program's name.

  Returns the values of the given flags by name, or None after --help. `help_text` is `text` of
  `command.parse`. Raises ValueError with one line that says what cannot be parsed.
  """
  values = define(table())
  if not command.read(values, help_text, arguments):
    return None
  return {flag.name: values[flag.name].value for flag in table() if values[flag.name].present}


def command_line(given: Mapping[str, Any]) -> list[str]:
  """Returns command-line arguments from which `parse` returns `given`, flag values by name."""
  arguments = []
  for name, value in given.items():
    if isinstance(value, (list, tuple)):
      arguments += [f'--{name}={each}' for each in value]
    else:
      arguments += [f'--{pair}' for pair in options.pairs({name: value})]
  return arguments


def _kind(annotation: Any) -> type:
  """Returns the type of the flag for a field's type: list for a tuple, and T for T | None."""
  if typing.get_origin(annotation) is tuple:
    return list
  # The first type of T | None is T.
  alternatives = typing.get_args(annotation) or (annotation,)
  kind: type = alternatives[0]
  return kind
