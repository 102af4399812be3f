"""Prints the lines of Python of each part of the project, and the most that are allowed."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
# Folders -> the most lines that their Python files may have together.
LIMITS = {
  ('tff_adaptive', 'tasks', 'scripts'): 30_000,
  ('docs',): 310,  # What makes its pages.
  ('research',): 3_500,
  ('tests',): 25_000,
}


def count(path: pathlib.Path) -> int:
  """The lines of a file."""
  return len(path.read_text(encoding='utf-8').splitlines())


def lines(folders: tuple[str, ...]) -> int:
  """The lines of all Python files in some folders."""
  return sum(count(path) for folder in folders for path in (ROOT / folder).rglob('*.py'))


def main() -> int:
  """Prints a line for each room."""
  for folders, most in LIMITS.items():
    sys.stdout.write(f'{" + ".join(folders)}: {lines(folders):,} lines, at most {most:,}\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
