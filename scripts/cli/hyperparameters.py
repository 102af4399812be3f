"""The registry's hyperparameters as flags: which algorithms have them, defaults and help."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive.registry import entries
from tff_adaptive_tasks import catalog

CORRECTION, SERVER = 'Client correction', 'Server optimizer'


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
    entry: Any = server if self.group == SERVER else algorithm
    return not entry.takes_options and entry.name in self.owners

  def help(self) -> str:
    """Returns the flag's help: its meaning, the names of all that use it, and its default."""
    text = f'{self.first.help}. Used by {", ".join(self.owners)}.'
    by_default = _whose({owner: h.default for owner, h in self.owners.items()})
    if list(by_default) == [None]:
      return text
    if len(by_default) == 1:
      shown = _show(self.first.default)
    else:
      shown = ', '.join(f'{_show(value)} ({who})' for value, who in by_default.items())
    for value, servers in _whose(self.first.default_with).items():
      shown += f'; with {servers} {_show(value)}'
    if self.first.name in catalog.TUNED:
      shown += ", or the task's"
    return f'{text} Default {shown}.'


def named() -> dict[str, Named]:
  """Returns all hyperparameters of the registry by name, those of server optimizers first."""
  found: dict[str, Named] = {}
  tables: Any = ((SERVER, registry.SERVER_OPTIMIZERS), (CORRECTION, registry.ALGORITHMS))
  for group, table in tables:
    for entry in table.values():
      for h in entry.hyperparameters:
        found.setdefault(h.name, Named(group, {})).owners[entry.name] = h
  return found


def listed(entry: entries.Named | entries.ServerOptimizer) -> str:
  """Formats the options and defaults of an entry for --help, such as 'a=0.5, b'."""
  return ', '.join(
    f'{h.name}' if h.default is None else f'{h.name}={_show(h.default)}'
    for h in entry.hyperparameters
  )


def _whose(values: Mapping[str, Any]) -> dict[Any, str]:
  """Returns a mapping from each value to the names that have it, separated by commas."""
  return {v: ', '.join(n for n, own in values.items() if own == v) for v in values.values()}


def _show(value: Any) -> str:
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  return f'{value:g}' if isinstance(value, (int, float)) else str(value)
