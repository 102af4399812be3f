"""Formats values for messages and digests, with NumPy's scalars as Python's."""

import sys
from typing import Any

_PLAIN = (str, int, float, bool)


def in_text(value: Any) -> str:
  """Returns `repr(value)`, in which NumPy's scalars look like Python's at any depth.

  From NumPy 2 on their own form has the type, such as np.str_('a') for a client's id.
  """
  numpy: Any = sys.modules.get('numpy')
  # Importing NumPy takes time, and without it there are no such values.
  if numpy is None or numpy.__version__.startswith('1.') or type(value) in _PLAIN:
    return repr(value)
  if isinstance(value, numpy.str_):  # Of these there may be one for each client.
    return repr(str(value))
  # NumPy's form of that version has no types of scalars.
  with numpy.printoptions(legacy='1.25'):
    return repr(value)
