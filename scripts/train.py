"""Trains a federated optimizer on a task; `--help` says how."""

import sys
from collections.abc import Sequence

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from .cli import command, flags, help_text, resolve, result_table, run


@command.entry('train.py', 'interrupted; rounds that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns its exit code.

  0 when all rounds are done, 1 when the model diverged or, in the last round, every client did, 2
  for bad input, 128 + the signal's number when a signal ended the run.
  """
  given = flags.parse(arguments, help_text.text)
  if given is None:
    return command.DONE
  settings = resolve.resolve(given)
  outcome = run.run(settings, arguments)
  weighting = settings.clients.client_weighting
  result_table.show(outcome.result, settings.output.output_dir, weighting)
  run.check_result(outcome.result)
  return outcome.exit_code


if __name__ == '__main__':
  sys.exit(main())
