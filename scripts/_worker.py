"""The process that forks those in which scripts/sweep.py trains; see cli/worker.py."""

import sys

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from .cli import worker

if __name__ == '__main__':
  sys.exit(worker.main(sys.argv))
