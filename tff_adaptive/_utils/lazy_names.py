"""The public names of a package, loaded when they are first used (PEP 562)."""

import importlib.util
from collections.abc import Callable
from typing import Any

from tff_adaptive.environment import check


def attach(
  package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
  """Returns `__getattr__`, `__dir__` and `__all__` for a package whose names are in its stub.

  Args:
    package: The package's `__name__`.
    file: Its `__file__`; the names are in the `.pyi` file next to it.
  """
  # A Python without any package of the environment can still import what says how to make it.
  if importlib.util.find_spec('lazy_loader') is None:
    return _refuse, lambda: [], []
  import lazy_loader

  load, names, public = lazy_loader.attach_stub(package, file)

  def load_explained(name: str) -> Any:
    try:
      return load(name)
    except (ImportError, AttributeError) as error:
      explained = check.explained(error)
      if explained is error:
        raise
      raise explained from error

  return load_explained, names, public


def _refuse(name: str) -> Any:
  """Raises ImportError for a public name, and AttributeError for what Python itself looks up."""
  if name.startswith('__'):
    raise AttributeError(name)
  raise ImportError(f'{check.missing_packages()}.', name='lazy_loader')
