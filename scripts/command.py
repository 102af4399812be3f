"""What the scripts with flags of their own share: reading a command line, and ending."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NoReturn, Optional

from absl import flags as absl_flags

from tff_adaptive import interrupts


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
  """Runs a command that saves nothing on the way, and exits; Ctrl-C ends it at once, with 130."""
  with interrupts.ending_at_once(f'{os.path.basename(sys.argv[0])}: interrupted.'):
    sys.exit(main(sys.argv))


def read(flags: absl_flags.FlagValues, text: str, arguments: Sequence[str]) -> bool:
  """As `parse`, of a command that takes flags only; whether it is to be done."""
  rest = parse(flags, text, arguments)
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; flags are written --name=value.')
  return rest is not None


def parse(flags: absl_flags.FlagValues, text: str, arguments: Sequence[str]) -> Optional[list[str]]:
  """Reads a command line into flags; those not given take their defaults.

  Args:
    flags: The script's flags.
    text: What --help shows before them.
    arguments: The program's name and its arguments.

  Returns:
    The arguments that are no flags; None if it was --help, which is answered.

  Raises:
    ValueError: If a flag is unknown or its value bad.
  """
  if any(a in ('-h', '--help') for a in arguments[1:]):
    sys.stdout.write(f'{text}\n{flags.get_help()}\n')
    return None
  for name in flags:
    flags[name].unparse()
  try:
    return flags(list(arguments))[1:]
  except absl_flags.Error as error:
    raise ValueError(str(error)) from None


def check_output(flag: str, output: str) -> None:
  """Makes the folder of files OUTPUT.* and sees that it can be written to.

  Args:
    flag: The flag that names them.
    output: Their path without the ending.

  Raises:
    ValueError: If it cannot.
  """
  folder = os.path.dirname(os.path.abspath(output))
  try:
    os.makedirs(folder, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()  # To root, every folder seems to be writable.
  except OSError as error:
    raise ValueError(f'--{flag}={output} cannot be written to ({error.strerror}).') from None
