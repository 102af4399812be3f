"""The git revision of the checkout that this package is in."""

import functools
import os
import subprocess

_SECONDS = 20  # How long git may take.


@functools.cache
def git_revision() -> str | None:
  """Returns this checkout's git revision, with '+' if tracked files differ; None without git.

  The revision is read once in a process, because the process keeps the code that it began with.
  """
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  if not os.path.exists(os.path.join(root, '.git')):
    return None
  try:
    revision = _git(root, 'rev-parse', 'HEAD')
    differs = _git(root, 'status', '-s', '-uno')
  except (OSError, subprocess.SubprocessError):
    return None
  if differs:
    return f'{revision}+'
  return revision


def _git(root: str, *arguments: str) -> str:
  command = ['git', '-C', root, *arguments]
  done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
  return done.stdout.strip()
