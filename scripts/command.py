"""What the scripts with flags of their own share: reading a command line."""

import sys
from collections.abc import Sequence

from absl import flags as absl_flags


def read(flags: absl_flags.FlagValues, text: str, arguments: Sequence[str]) -> bool:
  """Reads a command line into flags; those not given take their defaults.

  Args:
    flags: The script's flags.
    text: What --help shows before them.
    arguments: The program's name and its arguments.

  Returns:
    False if it was --help, which is answered.

  Raises:
    ValueError: If a flag is unknown or its value bad, or something else stands there.
  """
  if any(a in ('-h', '--help') for a in arguments[1:]):
    sys.stdout.write(f'{text}\n{flags.get_help()}\n')
    return False
  for name in flags:
    flags[name].unparse()
  try:
    rest = flags(list(arguments))[1:]
  except absl_flags.Error as error:
    raise ValueError(str(error)) from None
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; flags are written --name=value.')
  return True
