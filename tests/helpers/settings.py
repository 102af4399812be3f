"""Settings as train.py makes them."""

from scripts.cli import flags, resolve


def of(*arguments):
  """The settings that train.py's flags give, on the digits if they name no task."""
  return resolve.resolve(flags.parse(['train.py', '--task=digits', *arguments]))
