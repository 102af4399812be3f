"""Prints the size of each room: statements, public names, files and flags. It judges nothing."""

import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
ROOMS = ('tff_adaptive', 'tasks', 'scripts', 'docs', 'research', 'oracle', 'tests')


def count(path: pathlib.Path) -> int:
  """The lines of a file."""
  return len(path.read_text(encoding='utf-8').splitlines())


def statements(tree: ast.AST) -> int:
  """The statements of a parsed file, docstrings left out."""
  nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
  return sum(not _is_text(node) for node in nodes)


def public_names(tree: ast.Module) -> int:
  """The functions and classes at the top of a parsed file whose names are public."""
  definitions = (ast.FunctionDef, ast.ClassDef)
  return sum(isinstance(n, definitions) and not n.name.startswith('_') for n in tree.body)


def flags() -> int:
  """The flags of train.py."""
  from scripts.cli import flags as train_flags

  return len(train_flags.table())


def _is_text(node: ast.stmt) -> bool:
  return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def main() -> int:
  """Prints a line for each room."""
  print_line = '{:<14}{:>8}{:>12}{:>14}\n'.format
  sys.stdout.write(print_line('room', 'files', 'statements', 'public names'))
  for room in ROOMS:
    paths = sorted((ROOT / room).rglob('*.py'))
    trees = [ast.parse(path.read_text(encoding='utf-8')) for path in paths]
    names = sum(public_names(tree) for tree in trees)
    total = sum(statements(tree) for tree in trees)
    sys.stdout.write(print_line(room, len(paths), f'{total:,}', names))
  sys.stdout.write(f'flags of train.py: {flags()}\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
