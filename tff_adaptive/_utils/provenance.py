"""Returns the versions and the git revision that a run was made with."""

import functools
import importlib.metadata
import os
import platform
import subprocess

_PACKAGES = ('tff-adaptive', 'tensorflow', 'tensorflow-federated', 'numpy')


def versions() -> dict[str, str]:
  """Returns the versions of Python and of the packages on which numbers depend."""
  found = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'not installed'
  return found


@functools.cache
def git_revision() -> str | None:
  """Returns the revision of this checkout, with '+' if files differ; None outside of git.

  It is read once in a process, because the process continues with the code that it began with.
  """
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  if not os.path.exists(os.path.join(root, '.git')):
    return None

  def git(*arguments: str) -> str:
    command = ['git', '-C', root, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout

  try:
    revision = git('rev-parse', 'HEAD').strip()
    differs = git('status', '-s', '-uno').strip()
  except (OSError, subprocess.SubprocessError):
    return None
  return revision + ('+' if differs else '')
