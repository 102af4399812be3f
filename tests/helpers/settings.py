"""Settings as train.py makes them."""

from scripts.cli import flags, resolve


def of(*arguments):
  """The settings that train.py's flags give."""
  return resolve.resolve(flags.parse(['train.py', *arguments]))
