"""Writes the tables of README.md that are made from the registry, between their markers.

.venv/bin/python scripts/env/tables.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / 'README.md'
_MARKED = re.compile(r'(<!-- algorithms -->\n).*?(<!-- end -->)', re.DOTALL)


def algorithms() -> str:
  """Returns the table of the registry's algorithms in Markdown."""
  from tff_adaptive import registry

  lines = ['| `--algorithm` | | client state | hyperparameters | paper |', '|---|---|---|---|---|']
  for entry in registry.ALGORITHMS.values():
    hyperparameters = ', '.join(f'{h.name} = {_value(h.default)}' for h in entry.hyperparameters)
    state = 'yes' if entry.is_stateful else ''
    lines.append(
      f'| `{entry.name}` | {entry.title}: {entry.description} | {state} | {hyperparameters}'
      f' | {entry.paper} |'
    )
  return '\n'.join(lines) + '\n'


def _value(value: object) -> str:
  return str(value).lower() if isinstance(value, bool) else str(value)


def updated(text: str) -> str:
  """Returns the README with its table as the registry has it now."""
  return _MARKED.sub(lambda found: found[1] + algorithms() + found[2], text)


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT))
  README.write_text(updated(README.read_text(encoding='utf-8')), encoding='utf-8')
