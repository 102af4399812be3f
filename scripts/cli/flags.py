"""The flags of scripts/train.py, made from `Settings` and the registry; no TensorFlow."""

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from . import fields, hyperparameters, options, settings

# What people try, and what it is here.
_TRIED = {
  'lr': 'client_learning_rate and --server_learning_rate',
  'learning_rate': 'client_learning_rate and --server_learning_rate',
  'client_lr': 'client_learning_rate',
  'server_lr': 'server_learning_rate',
  'epochs': 'client_epochs; how long it trains is --rounds',
  'local_epochs': 'client_epochs',
  'num_rounds': 'rounds',
  'total_rounds': 'rounds',
  'batch': 'batch_size',
  'client_batch_size': 'batch_size',
  'optimizer': 'algorithm, or --server_optimizer of one that takes any',
  'dataset': 'task',
  'num_clients': 'clients_per_round; those there are: --task_option=num_clients=NUMBER',
  'out': 'output_dir',
}
absl_flags.disclaim_key_flags()  # They are of the script that asks for them.

_HELP = ('-h', '-help', '--help', '--helpfull', '-?')


class Flag(NamedTuple):
  """One flag.

  Attributes:
    group: Its heading in --help.
    name: Its name.
    kind: str, int, float, bool, or list for one that may be repeated.
    default: Its default; None: decided later, or none.
    help: Its help.
  """

  group: str
  name: str
  kind: type
  default: Any
  help: str


def table() -> list[Flag]:
  """Returns all flags, in the order of --help."""
  own: dict[str, list[Flag]] = {}
  for name, named in hyperparameters.named().items():
    own.setdefault(named.group, []).append(
      Flag(named.group, name, named.first.kind, None, named.help())
    )
  found = []
  for group, kind in settings.GROUPS.items():
    if group == 'clients':  # Hyperparameters stand after the rates.
      found += [*own[hyperparameters.SERVER], *own[hyperparameters.CORRECTION]]
    found += of_group(kind)
  return found


def of_group(group: type[fields.Group]) -> list[Flag]:
  """Returns the flags of a group of settings."""
  types = typing.get_type_hints(group)
  return [
    Flag(group.TITLE, f.name, _kind(types[f.name]), f.metadata['default'], f.metadata['help'])
    for f in dataclasses.fields(group)  # type: ignore[arg-type]
  ]


def names() -> list[str]:
  """Returns the names of all flags."""
  return [flag.name for flag in table()]


def define(flags: Iterable[Flag] | None = None) -> absl_flags.FlagValues:
  """Returns flags, by default all, apart from absl's global ones, with their defaults."""
  values = absl_flags.FlagValues()
  definers = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_boolean,
    list: absl_flags.DEFINE_multi_string,
  }
  for flag in table() if flags is None else flags:
    definers[flag.kind](flag.name, flag.default, flag.help, flag_values=values)
  return values


def parse(arguments: Sequence[str]) -> dict[str, Any] | None:
  """Parses a command line.

  Args:
    arguments: The program's name and its arguments.

  Returns:
    Flag name -> value of those that were given, for `resolve.resolve`; or None if help was asked
    for.

  Raises:
    ValueError: With one line on what cannot be parsed.
  """
  if any(a in _HELP for a in arguments[1:]):
    return None
  values = define()
  try:
    rest = values(list(arguments))[1:]
  except absl_flags.UnrecognizedFlagError as error:
    if error.flagname in _TRIED:
      raise ValueError(
        f'there is no --{error.flagname}: give --{_TRIED[error.flagname]}.'
      ) from None
    raise ValueError(' '.join(str(error).split())) from None
  except absl_flags.Error as error:
    # Of a truth value it shows a tuple of the message and the value, which has been named.
    text = re.sub(r"\('(.*)', '.*'\)$", r'\1', str(error))
    raise ValueError(' '.join(text.split())) from None
  except UnicodeDecodeError:
    raise ValueError(f'{_flagfiles(arguments)} holds no text: give a file of flags.') from None
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; flags are written --name=value.')
  return {flag.name: values[flag.name].value for flag in table() if values[flag.name].present}


def command_line(given: Mapping[str, Any]) -> list[str]:
  """Returns the flags that give what `parse` returns; also of truth values and repeated flags."""
  found = []
  for name, value in given.items():
    if isinstance(value, (list, tuple)):
      found += [f'--{name}={each}' for each in value]
    else:
      found += [f'--{pair}' for pair in options.pairs({name: value})]
  return found


def _flagfiles(arguments: Sequence[str]) -> str:
  return ' or '.join(a for a in arguments[1:] if a.lstrip('-').startswith('flagfile'))


def _kind(annotation: Any) -> type:
  """The kind of flag for the type of a field: of T | None that of T."""
  if typing.get_origin(annotation) is tuple:
    return list
  kind: type = (typing.get_args(annotation) or (annotation,))[0]
  return kind
