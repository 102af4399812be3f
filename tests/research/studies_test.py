"""The studies of results/: today's flags accept their commands, and each says how it was made."""

import importlib
import itertools
import json
import os
import pathlib
import re
import subprocess

import pytest

from research import studies
from scripts import report, sweep
from scripts.cli import command, flags, resolve
from tests.helpers import task_data

FOLDERS = {folder.name: folder for folder in studies.folders()}
# Written in the place of Python: shows each command, its arguments divided by a character.
SHOW = '#!/bin/sh\nprintf "%s\\037" "$@"\necho\n'
OWN_FLAGS = {'research.tff_suite': ['--source']}  # Read by argparse.
PAGES = ('README.md', 'docs/*.md', 'docs/guide/*.md', 'docs/design/*.md')


def shown_commands(name: str, folder: pathlib.Path, **environment: str) -> list[list[str]]:
  """Returns the commands that a study's run.sh would start, without their Python."""
  show = folder / 'show'
  show.write_text(SHOW)
  show.chmod(0o755)
  data = folder / 'data'
  data.mkdir(exist_ok=True)
  lines = subprocess.check_output(
    ['sh', str(studies.RESULTS / name / 'run.sh'), str(data)],
    cwd=studies.ROOT,
    env={**os.environ, 'PY': str(show), 'RUNS': str(folder / 'runs'), **environment},
    text=True,
  ).splitlines()
  return [line.split('\037')[:-1] for line in lines]


def by_value(arguments: list[str]) -> list[list[str]]:
  """Returns a sweep's arguments once for each value of each list, the others at their first one.

  But for the algorithms, which stay together: some values are for one of them. Any seed goes with
  the others.
  """
  lists = {}
  for i, text in enumerate(arguments):
    if text.startswith('--grid=') and not text.startswith('--grid=algorithm='):
      first, *others = text.split(',')
      lists[i] = [first] if first.startswith('--grid=seed=') else [first, *others]
  name_of = {i: first.removeprefix('--grid=').partition('=')[0] for i, (first, *_) in lists.items()}
  firsts = {i: values[0] for i, values in lists.items()}
  points = [firsts]
  for i, values in lists.items():
    points += [{**firsts, i: f'--grid={name_of[i]}={value}'} for value in values[1:]]
  return [[point.get(i, text) for i, text in enumerate(arguments)] for point in points]


def check(arguments: list[str]) -> None:
  """Raises ValueError or fails if a command's flags do not exist or do not go together."""
  if arguments[0] == '-m':
    name = arguments[1]
    given = arguments[2:]
  else:
    name = arguments[0].removesuffix('.py').replace('/', '.')
    given = arguments[1:]
  if name == 'scripts.train':
    resolve.resolve(flags.parse(['train.py', *given]))
  elif name == 'scripts.sweep':
    for point in by_value(given):
      assert sweep.main(['sweep.py', '--dry_run', *point]) == 0, point
  elif name == 'scripts.report':
    folders = command.parse(report._FLAGS, '', ['report.py', *given])
    assert folders, given
    values = flags.check(report._FLAGS, report._Report)
    report._options_of(report.catalog.FORMS[values.form], values)
  elif name in OWN_FLAGS:
    assert {text.partition('=')[0] for text in given} <= set(OWN_FLAGS[name])
  else:
    module = importlib.import_module(name)
    if given:
      assert command.parse(module._FLAGS, '', [name, *given]) == []


@pytest.mark.parametrize('name', FOLDERS)
def test_a_study_says_how_it_was_made(name):
  meta = studies.read(FOLDERS[name])
  files = {path.name for path in FOLDERS[name].iterdir()}
  assert {'run.sh', 'meta.json', 'README.md'} < files
  assert not any(path.is_dir() for path in FOLDERS[name].iterdir())
  script = (FOLDERS[name] / 'run.sh').read_text(encoding='utf-8')
  assert '\n. research/studies.sh\n' in script
  assert bool(meta['data']) == ('$DIR' in script)


@pytest.mark.parametrize('name', FOLDERS)
def test_todays_flags_accept_its_commands(name, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(studies.ROOT)  # Flagfiles are named from there.
  commands = shown_commands(name, tmp_path)
  assert commands
  short = shown_commands(name, tmp_path, SMOKE='1')
  # What sweeps and single runs add in a smoke is the same for all; programs have their own flags.
  for arguments in [*commands, *(line for line in short if line[0] == '-m')]:
    check(arguments)
  for text in itertools.chain(*commands, *short):
    flag, _, value = text.partition('=')
    if flag == '--output_dir':
      # A variable of run.sh that a function of studies.sh sets would put a folder into another.
      assert value.count(str(tmp_path)) == 1
  outputs = [text for line in short for text in line if text.startswith('--output=')]
  assert not any('=results/' in text for text in outputs)
  assert not capsys.readouterr().err


def test_the_pages_are_as_generated():
  wrong = [
    str(path)
    for path, text in studies.pages().items()
    if not path.exists() or path.read_text(encoding='utf-8') != text
  ]
  assert wrong == [], 'run: python -m research.studies'


def test_every_result_belongs_to_a_study():
  loose = {path.name for path in studies.RESULTS.iterdir() if not path.is_dir()}
  assert loose == {'README.md'}


def test_what_pages_cite_exists_and_they_cite_by_study():
  named = re.compile(r'(?<![\w-])results/(\w+)(?:/([\w.]+))?')
  missing = []
  for pattern in PAGES:
    for page in studies.ROOT.glob(pattern):
      for name, file in named.findall(page.read_text(encoding='utf-8')):
        path = studies.RESULTS / name / file.rstrip('.')
        if name != 'README' and not path.exists() and not [*path.parent.glob(path.name + '.*')]:
          missing.append(f'{page.name}: {name}/{file}')
  assert missing == []


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ({'seeds': None}, 'seeds is None'),
    ({'date': 'in November'}, 'date'),
    ({'revision': 'HEAD'}, 'names no commit'),
    ({'versions': {'python': '3.12'}}, 'versions lacks'),
    ({'shows': 'a | b'}, 'one line'),
    ({'more': 1}, "unknown ['more']"),
  ],
)
def test_a_bad_meta_is_refused(change, said, tmp_path):
  meta = studies.read(FOLDERS['drift'])
  (tmp_path / 'meta.json').write_text(json.dumps({**meta, **change}))
  with pytest.raises(ValueError, match=re.escape(said)):
    studies.read(tmp_path)


def test_a_missing_folder_of_data_or_an_unknown_part_ends_it_in_one_line(tmp_path):
  script = str(studies.RESULTS / 'shakespeare' / 'run.sh')
  for given, said in (([], 'is no folder'), ([str(tmp_path), 'sonnets'], 'unknown part sonnets')):
    result = subprocess.run(
      ['sh', script, *given], cwd=studies.ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count('\n') == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', FOLDERS)
def test_its_smoke_ends_well(name, tmp_path):
  meta = studies.read(FOLDERS[name])
  missing = [
    file for file in meta['data'] if not os.path.exists(os.path.join(task_data.DATA_DIR, file))
  ]
  if missing:
    pytest.skip(f'{", ".join(missing)} not in {task_data.DATA_DIR}')
  before = {path: path.stat().st_mtime_ns for path in studies.RESULTS.rglob('*')}
  environment = {**os.environ, 'SMOKE': '1', 'RUNS': str(tmp_path / 'runs')}
  script = str(studies.RESULTS / name / 'run.sh')
  result = subprocess.run(
    ['sh', script, task_data.DATA_DIR],
    cwd=studies.ROOT,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr[-2000:]
  assert [*(tmp_path / 'runs_smoke' / 'results').iterdir()]
  assert before == {path: path.stat().st_mtime_ns for path in studies.RESULTS.rglob('*')}
