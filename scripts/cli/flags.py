"""The flags of scripts/train.py, made from `Settings` and the registry without TensorFlow."""

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from . import command, fields, hyperparameters, options, settings
from .groups import output, what

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
  found = []
  for group, kind in settings.GROUPS.items():
    if group == 'clients':  # The hyperparameters come after the rates.
      own = hyperparameters.named().items()
      found += [Flag(h.group, name, h.first.kind, None, h.help()) for name, h in own]
    found += of_group(kind)
  return found


def of_group(group: type[fields.Group]) -> list[Flag]:
  """Returns the flags of a group of settings."""
  types = typing.get_type_hints(group)
  return [
    Flag(group.TITLE, f.name, _kind(types[f.name]), f.metadata['default'], f.metadata['help'])
    for f in dataclasses.fields(group)  # type: ignore[arg-type]
  ]


def define_with_task(own: type[fields.Group]) -> absl_flags.FlagValues:
  """Returns the flags in `own`, and train.py's --task, --task_option, --seed and --data_dir."""
  return define([*of_group(own), *(flag for flag in table() if flag.name in _OF_TASK)])


def check(values: absl_flags.FlagValues, own: type[fields.Group]) -> Any:
  """Returns a command's own flags as an instance of `own`. Raises ValueError for invalid values."""
  given = {name for name in values if values[name].present}
  found = {field.name: values[field.name].value for field in dataclasses.fields(own)}  # type: ignore[arg-type]
  for field in dataclasses.fields(own):  # type: ignore[arg-type]
    fields.check(field, found, given)
  return own(**found)


def check_with_task(values: absl_flags.FlagValues, own: type[fields.Group]) -> dict[str, Any]:
  """Checks the flags of `define_with_task` like `check`. Returns the task's options by name."""
  what.check_task(values.task)
  check(values, own)
  seed = next(f for f in settings.FIELDS if f.name == 'seed')
  fields.check(seed, {'seed': values.seed}, ())
  output.check_data_dir(values.task, values.data_dir)
  return options.parse('task_option', values.task_option)


def load_task(values: absl_flags.FlagValues, options: Mapping[str, Any]) -> Any:
  """Loads the task that the flags name, with `options` of `check_with_task`. Imports TensorFlow."""
  import tff_adaptive_tasks as tasks

  return tasks.load(values.task, data_dir=values.data_dir, seed=values.seed, **options)


def define(flags: Iterable[Flag] | None = None) -> absl_flags.FlagValues:
  """Returns a new `FlagValues` of `flags`, by default train.py's; absl's global one is not used."""
  values = absl_flags.FlagValues()
  definers: dict[type, Callable[..., Any]] = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_boolean,
    list: absl_flags.DEFINE_multi_string,
  }
  for flag in table() if flags is None else flags:
    definers[flag.kind](flag.name, flag.default, flag.help, flag_values=values)
  return values


def parse(
  arguments: Sequence[str], help_text: Callable[[str], str] | None = None
) -> dict[str, Any] | None:
  """Parses train.py's command line, which begins with the program's name.

  Returns the values of the given flags by name, or None after --help. `help_text` is `text` of
  `command.parse`. Raises ValueError with one line that says what cannot be parsed.
  """
  values = define()
  if not command.read(values, help_text, arguments):
    return None
  return {flag.name: values[flag.name].value for flag in table() if values[flag.name].present}


def command_line(given: Mapping[str, Any]) -> list[str]:
  """Returns command-line arguments from which `parse` returns `given`, flag values by name."""
  found = []
  for name, value in given.items():
    if isinstance(value, (list, tuple)):
      found += [f'--{name}={each}' for each in value]
    else:
      found += [f'--{pair}' for pair in options.pairs({name: value})]
  return found


def _kind(annotation: Any) -> type:
  """Returns the type of the flag for a field's type: list for a tuple, and T for T | None."""
  kind: type = (typing.get_args(annotation) or (annotation,))[0]
  return list if typing.get_origin(annotation) is tuple else kind
