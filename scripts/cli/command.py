"""Parts that every command shares: flags, exit codes, and one-line error messages.

The exit codes are 0 for success, 1 for a failure after the start, 2 for bad input (one line,
nothing written), and 128 + the signal's number if a signal ended the command.
"""

import contextlib
import errno
import functools
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags as absl_flags

from tff_adaptive._utils import streams, texts

from .. import _entry, _streams
from . import flag_names, tensorflow_start

# Exit codes.
DONE = 0
FAILED = 1
BAD_INPUT = 2

_HELP = ('-h', '-help', '--help', '--helpfull', '-?')
_SEARCH = '--help='  # Begins --help=WORD.
_PACKAGES = ('tff_adaptive', 'tff_adaptive_tasks', 'tff_adaptive_scripts', 'tasks', 'scripts')
Main = Callable[[Sequence[str]], int]


class FailureError(Exception):
  """An error that ends a command after its work has begun, with exit code 1."""


class DivergedError(FailureError):
  """The model diverged, and the same run would diverge again."""


def entry(
  program: str,
  interrupted: str = 'interrupted.',
  *,
  prints_result: Callable[[], bool] = lambda: False,
) -> Callable[[Main], Callable[..., int]]:
  """Returns a decorator that turns errors of a `main` into a line on stderr and an exit code.

  The code of ValueError and OSError is `BAD_INPUT`; that of `FailureError` and of a full disk is
  `FAILED`. Other errors are not caught.

  Args:
    program: The command's file name, which begins the line that reports a failure.
    interrupted: The message after Ctrl-C, which can say what is saved.
    prints_result: Returns whether what the command prints is its result, and not in a file too. A
      command whose result cannot be written has failed.
  """

  def decorate(main: Main) -> Callable[..., int]:
    @functools.wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
      tensorflow_start.quietly()  # A user's own file may import TensorFlow first.
      _entry.interrupted = interrupted
      name = _entry.started_as or program
      if arguments is None:
        arguments = sys.argv
      try:
        with _plain_warnings():
          code = main(arguments)
      except FailureError as error:
        return complain(name, error, FAILED)
      except (ValueError, OSError) as error:  # tasks.DataError is a ValueError.
        return complain(name, error, _code(error))
      except KeyboardInterrupt:  # If `_entry.begin` was not called.
        return complain(name, interrupted, _entry.INTERRUPTED)
      lost = _streams.output_error()
      if lost is not None and prints_result():
        return complain(name, f'the result cannot be written: {lost.strerror}.', code or FAILED)
      return code

    return run

  return decorate


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
  """A context in which a warning of this project is one line, without its place in the code.

  Users see what they can do, as in an error. Warnings of other packages are as before.
  """
  root = os.path.dirname(os.path.dirname(os.path.abspath(_entry.__file__)))
  folders = tuple(os.path.join(root, name, '') for name in _PACKAGES)
  before = warnings.showwarning

  def show(
    message: Any,
    category: Any,
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
  ) -> None:
    if category is UserWarning and os.path.abspath(filename).startswith(folders):
      say(f'Warning: {" ".join(str(message).split())}')
    else:
      before(message, category, filename, lineno, file, line)

  warnings.showwarning = show
  try:
    yield
  finally:
    warnings.showwarning = before


def _code(error: Exception) -> int:
  """Returns the exit code for an error that is a ValueError or OSError."""
  number = getattr(error.__cause__ or error, 'errno', None)
  if number in (errno.ENOSPC, errno.EDQUOT):  # The disk was filled after the start.
    return FAILED
  return BAD_INPUT


def complain(program: str, error: object, code: int = BAD_INPUT) -> int:
  """Writes an error as one line to standard error, and returns `code`."""
  streams.write(sys.stderr, f'{program}: {printable(" ".join(str(error).split()))}\n')
  return code


def say(line: str) -> None:
  """Writes a progress line to standard error."""
  streams.write(sys.stderr, printable(line) + '\n')


def show(text: str) -> None:
  """Writes a result to standard output."""
  streams.write(sys.stdout, printable(text))


def printable(text: str) -> str:
  r"""Returns text with control characters (not line ends) and undecodable bytes escaped, like \x1b.

  Names of files, cells and options may be another person's. They must not control the terminal.
  """
  return texts.printable(text)


def read(
  flags: absl_flags.FlagValues, text: str | Callable[[str], str] | None, arguments: Sequence[str]
) -> bool:
  """Parses like `parse`, but positional arguments are a ValueError. Returns False after --help."""
  rest = parse(flags, text, arguments)
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; flags are written --name=value.')
  return rest is not None


def parse(
  flags: absl_flags.FlagValues, text: str | Callable[[str], str] | None, arguments: Sequence[str]
) -> list[str] | None:
  """Parses a command line into `flags`, with ~ expanded. Raises ValueError if it is invalid.

  Args:
    flags: The script's flags. Those that are not in `arguments` get their defaults.
    text: The text that --help shows before the flags, in which {train} is how train.py is started.
      Or a function that returns the help: what it has on WORD for --help=WORD, all of it for ''.
    arguments: The program's name and its arguments.

  Returns:
    The arguments that are not flags, or None after --help.
  """
  # Before the flags are parsed, because a wrong flag must not keep the help away.
  words = [a.removeprefix(_SEARCH) for a in arguments[1:] if a.startswith(_SEARCH)]
  if words or any(a in _HELP for a in arguments[1:]):
    word = ''.join(words[:1])
    if callable(text):
      help_text = text(word)
    elif word:
      help_text = _search(flags, word)
    else:
      help_text = f'{with_commands(text or "")}\n{flags.get_help()}\n'
    streams.write(sys.stdout, help_text)
    return None
  # The flags may have the values of an earlier call, in a test or a notebook.
  for name in flags:
    flags[name].unparse()
  try:
    rest = flags(list(arguments))[1:]
  except absl_flags.CantOpenFlagFileError as error:
    reason: Any = error.__context__  # An OSError.
    raise ValueError(f'--flagfile={reason.filename}: {reason.strerror}; name a file.') from None
  except RecursionError:  # absl compares an unknown name with all flags' names letter by letter.
    raise ValueError('unknown flag with a very long name; see --help.') from None
  except absl_flags.UnrecognizedFlagError as error:
    raise ValueError(_unknown(error.flagname, flags)) from None
  except absl_flags.Error as error:
    kind = 'a whole number'
    if 'to float' in str(error):
      kind = 'a number'
    known = r'flag --(.*?)=(.*): (invalid literal|could not convert).*'
    reason = re.sub(known, rf"--\1 must be {kind}, found '\2'", str(error))
    raise ValueError(f'{reason}; see --help.') from None
  for name in flags:
    flags[name].value = expanded(flags[name].value)
  return rest


def with_commands(text: str) -> str:
  """Returns a help text with the commands in place of {train}, {sweep} and so on."""
  for module, line in _entry.commands().items():
    text = text.replace('{' + module + '}', line)
  return text


def _search(flags: absl_flags.FlagValues, word: str) -> str:
  """Returns the help of the flags that have a word in their names or texts.

  Raises ValueError if there are none.
  """
  lines = [
    f'  --{name}: {flags[name].help}\n'
    for name in flags
    if word.lower() in f'{name} {flags[name].help}'.lower()
  ]
  if not lines:
    raise ValueError(f'--help={word}: no flag has this word; see --help.')
  return ''.join(lines)


def _unknown(name: str, flags: absl_flags.FlagValues) -> str:
  """Returns the message for a flag that does not exist."""
  hint = flag_names.hint(name, flags)
  if not hint:
    return f'unknown flag --{name}; see --help.'
  return f'unknown flag --{name}: {hint} See --help={name}.'


def expanded(value: Any) -> Any:
  """Returns a flag's value with ~ expanded, because shells do not expand it after `=`."""
  if isinstance(value, str):
    return os.path.expanduser(value)
  return value


def check_output(flag: str, output: str) -> None:
  """Creates the folder of files `output`.*. Raises ValueError if this is not possible."""
  if not os.path.basename(output):
    raise ValueError(f'--{flag}={output} is a folder: name the files in it, {output}report, say.')
  folder = os.path.dirname(os.path.abspath(output))
  check_writable(folder, f'{flag}={output}')
  os.makedirs(folder, exist_ok=True)


def check_writable(folder: str, given: str) -> None:
  """Raises ValueError if a folder could not be created or written to; `given` is its FLAG=VALUE."""
  path = os.path.abspath(folder)
  # The nearest folder that exists decides whether the others can be made in it.
  while not os.path.lexists(path):
    path = os.path.dirname(path)
  try:
    tempfile.TemporaryFile(dir=path).close()  # To root, every folder seems to be writable.
  except OSError as error:
    raise ValueError(f'--{given} cannot be written to ({error.strerror}): name another.') from None
