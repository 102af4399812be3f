"""The public names of a package, loaded when they are first used (PEP 562)."""

from collections.abc import Callable
from typing import Any

import lazy_loader

from tff_adaptive.environment import check


def attach(
  package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
  """Returns `__getattr__`, `__dir__` and `__all__` for a package whose names are in its stub.

  Args:
    package: The package's `__name__`.
    file: Its `__file__`; the names are in the `.pyi` file next to it.
  """
  load, names, public = lazy_loader.attach_stub(package, file)

  def load_explained(name: str) -> Any:
    try:
      return load(name)
    except ImportError as error:  # TensorFlow or TFF are missing, or of another version.
      explained = check.explained(error)
      if explained is error:
        raise
      raise explained from error

  return load_explained, names, public
