"""The registry's hyperparameters as flags: which algorithms have them, defaults and help."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive.registry import entries
from tff_adaptive_tasks import catalog

# Groups of hyperparameters, which are headings of --help.
CORRECTION = 'Client correction'
SERVER = 'Server optimizer'


@dataclasses.dataclass(frozen=True)
class Named:
  """A hyperparameter that is a flag. Several algorithms or server optimizers may have it.

  Attributes:
    group: `CORRECTION` or `SERVER`, a heading of --help.
    owners: Maps the name of each algorithm or server optimizer that has it to its declaration.
  """

  group: str
  owners: dict[str, registry.Hyperparameter]

  @property
  def first(self) -> registry.Hyperparameter:
    """The first of the declarations in `owners`, which all have the same type and help."""
    return next(iter(self.owners.values()))

  def belongs_to(self, algorithm: registry.Algorithm, server: registry.ServerOptimizer) -> bool:
    """Returns whether the algorithm or server optimizer has this flag; False for a user's own."""
    entry: Any = algorithm
    if self.group == SERVER:
      entry = server
    return not entry.takes_options and entry.name in self.owners

  def help(self) -> str:
    """Returns the flag's help: its meaning, the names of all that use it, and its default."""
    text = f'{self.first.help}. Used by {", ".join(self.owners)}.'
    by_default = _whose({owner: h.default for owner, h in self.owners.items()})
    if list(by_default) == [None]:
      return text
    if len(by_default) == 1:
      default = _show(self.first.default)
    else:
      default = ', '.join(f'{_show(value)} ({who})' for value, who in by_default.items())
    for value, servers in _whose(self.first.default_with).items():
      default += f'; with {servers} {_show(value)}'
    if self.first.name in catalog.TUNED:
      default += ", or the task's"
    return f'{text} Default {default}.'


def named() -> dict[str, Named]:
  """Returns all hyperparameters of the registry by name, those of server optimizers first."""
  by_name: dict[str, Named] = {}
  tables: Any = ((SERVER, registry.SERVER_OPTIMIZERS), (CORRECTION, registry.ALGORITHMS))
  for group, table in tables:
    for entry in table.values():
      for h in entry.hyperparameters:
        by_name.setdefault(h.name, Named(group, {})).owners[entry.name] = h
  return by_name


def listed(entry: entries.Named | entries.ServerOptimizer) -> str:
  """Formats the options and defaults of an entry for --help, such as 'a=0.5, b'."""
  texts = []
  for h in entry.hyperparameters:
    default = '' if h.default is None else f'={_show(h.default)}'
    texts.append(f'{h.name}{default}')
  return ', '.join(texts)


def _whose(values: Mapping[str, Any]) -> dict[Any, str]:
  """Returns a mapping from each value to the names that have it, separated by commas."""
  names: dict[Any, list[str]] = {}
  for name, value in values.items():
    names.setdefault(value, []).append(name)
  return {value: ', '.join(having) for value, having in names.items()}


def _show(value: Any) -> str:
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if isinstance(value, (int, float)):
    return f'{value:g}'
  return str(value)
