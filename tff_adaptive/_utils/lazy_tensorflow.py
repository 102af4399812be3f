"""TensorFlow under the name `tf`, imported when one of its names is first used.

Formula files import it from here. The registry reads them for --help, which needs no TensorFlow.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import tensorflow as tf
else:

  class _TensorFlow:
    """Stands for the module `tensorflow`."""

    def __getattr__(self, name: str) -> Any:
      import tensorflow

      return getattr(tensorflow, name)

  tf = _TensorFlow()

__all__ = ['tf']
