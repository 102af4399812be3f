"""The entries of server and client optimizers, collected from classes that describe themselves."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from tff_adaptive import optimizers
from tff_adaptive._utils import hyperparameters
from tff_adaptive.optimizers.base import Formula
from tff_adaptive.registry.entries import Hyperparameter, ServerOptimizer

# Files without formulas that import TFF, which commands load later.
_NEED_TFF = ('per_coordinate',)


def formulas(package: ModuleType) -> Iterator[type[Formula]]:
  """Yields the optimizers that the files of a package define, in the order of files and lines."""
  for file in pkgutil.iter_modules(package.__path__):
    if file.name in _NEED_TFF:
      continue
    module = importlib.import_module(f'{package.__name__}.{file.name}')
    for value in vars(module).values():
      is_formula = isinstance(value, type) and issubclass(value, Formula)
      # A base class has no name of its own, and an imported class belongs to another file.
      if is_formula and value.__module__ == module.__name__ and vars(value).get('name'):
        yield value


def listed(role: str, package: ModuleType = optimizers) -> list[ServerOptimizer]:
  """Returns the entries of the optimizers of a role, 'server' or 'clients'."""
  return [entry(kind, role) for kind in formulas(package) if role in kind.used_by]


def entry(
  kind: type[Formula],
  role: str,
  name: str = '',
  declared: tuple[Hyperparameter, ...] | None = None,
) -> ServerOptimizer:
  """Returns the entry of an optimizer that describes itself.

  Args:
    kind: The class.
    role: 'server' or 'clients', whose default rate it gets.
    name: Its name if the class has none.
    declared: Its hyperparameters; None for those that the class declares.
  """
  if declared is None:
    declared = hyperparameters.declared_by(kind)
  # Rates of servers and clients differ: a server steps along a mean of many steps of clients.
  rate = kind.client_rate
  if role == 'server':
    rate = kind.server_rate
  return ServerOptimizer(
    name=kind.name or name,
    title=kind.title or kind.name or name,
    description=kind.summary,
    build=kind.build,
    hyperparameters=declared,
    rate=rate,
    has_momentum=kind.has_momentum,
  )
