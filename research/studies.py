"""Writes results/README.md and results/NAME/README.md from the studies' meta.json.

usage: python -m research.studies

A study is a folder results/NAME/ with run.sh, the command that makes it, meta.json, which says how
the numbers came about, and its tables and figures. CONTRIBUTING.md has the fields of meta.json.
"""

import json
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / 'results'
README = 'README.md'
BY_RUN_SH = 'run.sh'
# Field of meta.json -> the types that it may have.
FIELDS: Mapping[str, tuple[type, ...]] = {
  'shows': (str,),
  'data': (list,),
  'made_by': (str,),
  'revision': (str,),
  'seeds': (list,),
  'machine': (str,),
  'versions': (dict,),
  'date': (str,),
  'seconds': (int, float, type(None)),
}
VERSIONS = {'python', 'tensorflow', 'tensorflow_federated'}
_LOCKED = re.compile(r'^tensorflow==(\d+\.\d+\.)', re.MULTILINE)
_DATE = re.compile(r'2\d\d\d-\d\d-\d\d( to 2\d\d\d-\d\d-\d\d)?')
_REVISION = re.compile(r'[0-9a-f]{7,40}')
_TABLE = re.compile(r'(<!-- studies -->\n).*?(<!-- end -->)', re.DOTALL)
_PICTURES = ('.png', '.svg')


def folders() -> list[pathlib.Path]:
  """Returns the folders of the studies, sorted by name."""
  return sorted(path for path in RESULTS.iterdir() if path.is_dir())


def read(folder: pathlib.Path) -> dict[str, Any]:
  """Returns a study's meta.json. Raises ValueError if a field is missing, unknown or wrong."""
  path = folder / 'meta.json'
  if not path.is_file():
    raise ValueError(f'{folder} has no meta.json: see CONTRIBUTING.md.')
  meta: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
  missing = FIELDS.keys() - meta.keys()
  unknown = meta.keys() - FIELDS.keys()
  if missing or unknown:
    raise ValueError(f'{path}: missing {sorted(missing)}, unknown {sorted(unknown)}.')
  for name, types in FIELDS.items():
    if not isinstance(meta[name], types):
      raise ValueError(f'{path}: {name} is {meta[name]!r}: give {types[0].__name__}.')
    if types == (str,) and not meta[name].strip():
      raise ValueError(f'{path}: {name} is empty.')
  if not _DATE.fullmatch(meta['date']):
    raise ValueError(f"{path}: date is {meta['date']!r}: write 2026-11-29, or two with ' to '.")
  if not _REVISION.search(meta['revision']):
    raise ValueError(f'{path}: revision names no commit: {meta["revision"]!r}.')
  if not meta['versions'].keys() >= VERSIONS:
    raise ValueError(f'{path}: versions lacks one of {sorted(VERSIONS)}.')
  if not all(isinstance(seed, int) for seed in meta['seeds']):
    raise ValueError(f'{path}: seeds are whole numbers.')
  if '\n' in meta['shows'] or '|' in meta['shows']:
    raise ValueError(f'{path}: shows is one line without |.')
  return meta


def locked_tensorflow() -> str:
  """Returns the beginning of the version in requirements.lock, such as '2.21.'.

  Studies that were made with another one have a star in the table.
  """
  lock = (ROOT / 'requirements.lock').read_text(encoding='utf-8')
  line = _LOCKED.search(lock)
  if line is None:
    raise ValueError('requirements.lock has no tensorflow==VERSION.')
  return line[1]


def command(name: str, meta: Mapping[str, Any]) -> str:
  """Returns the command that makes a study, which is started in the root."""
  words = ['sh', f'results/{name}/run.sh']
  if meta['data']:
    words.append('DIR')
  return ' '.join(words)


def page(folder: pathlib.Path) -> str:
  """Returns a study's README.md."""
  meta = read(folder)
  lines = [
    f'# {folder.name}',
    '',
    '<!-- Written by research/studies.py from meta.json. -->',
    meta['shows'],
    '',
    f'    {command(folder.name, meta)}',
    '',
  ]
  if meta['data']:
    lines += [f'DIR holds {", ".join(f"`{name}`" for name in meta["data"])}.', '']
  made_by = meta['made_by']
  if made_by == BY_RUN_SH:
    made_by = 'this command'
  when = meta['date']
  if meta['seconds'] is not None:
    when += f'; {meta["seconds"]:,} seconds in all'
  versions = ', '.join(f'{name} {version}' for name, version in meta['versions'].items())
  lines += [
    '| | |',
    '|---|---|',
    f'| made by | {made_by} |',
    f'| revision | {meta["revision"]} |',
    f'| seeds | {_seeds(meta)} |',
    f'| machine | {meta["machine"]} |',
    f'| versions | {versions} |',
    f'| date | {when} |',
    f'| files | {", ".join(f"[{name}]({name})" for name in _files(folder))} |',
    '',
  ]
  for name in _files(folder):
    if name.endswith(_PICTURES):
      lines += [f'![{name.partition(".")[0].replace("_", " ")}]({name})', '']
  return '\n'.join(lines)


def table() -> str:
  """Returns the table of all studies in Markdown."""
  tensorflow = locked_tensorflow()
  lines = ['| study | what it shows | command | made at | seeds |', '|---|---|---|---|---|']
  for folder in folders():
    meta = read(folder)
    revision = meta['revision']
    if not meta['versions']['tensorflow'].startswith(tensorflow):
      revision += ' \\*'
    cells = (
      f'[{folder.name}]({folder.name}/{README})',
      meta['shows'],
      f'`{command(folder.name, meta)}`',
      revision,
      _seeds(meta),
    )
    lines.append(f'| {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'


def pages() -> dict[pathlib.Path, str]:
  """Returns what each page should have, by its path."""
  texts = {folder / README: page(folder) for folder in folders()}
  head = (RESULTS / README).read_text(encoding='utf-8')
  texts[RESULTS / README] = _TABLE.sub(lambda match: match[1] + table() + match[2], head)
  return texts


def _files(folder: pathlib.Path) -> list[str]:
  """Returns the names of a study's files but the page itself."""
  return sorted(path.name for path in folder.iterdir() if path.name != README)


def _seeds(meta: Mapping[str, Any]) -> str:
  return ', '.join(str(seed) for seed in meta['seeds']) or 'none'


def main() -> int:
  """Writes the pages that differ."""
  for path, text in pages().items():
    if not path.exists() or path.read_text(encoding='utf-8') != text:
      path.write_text(text, encoding='utf-8')
      print(path.relative_to(ROOT))
  return 0


if __name__ == '__main__':
  sys.exit(main())
