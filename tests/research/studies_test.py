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


def check_sweep(arguments: list[str]) -> None:
  """Raises ValueError if a sweep's flags or a value of its lists are refused.

  A value is tried with the first ones of the other lists, and with each algorithm that takes it.
  """
  of_sweep, of_runs = sweep._split(arguments)
  assert command.parse(sweep._FLAGS, '', ['sweep.py', *of_sweep]) == []
  plan = flags.check(sweep._FLAGS, sweep.plan_lib.Plan)
  sweep._space(plan, of_runs).check()


def is_program(arguments: list[str]) -> bool:
  """Returns whether a command runs a module of research/, whose import may load TensorFlow."""
  return arguments[0] == '-m'


def check_program(arguments: list[str]) -> None:
  """Raises ValueError or fails if a module of research/ lacks a flag that it is given."""
  name = arguments[1]
  given = arguments[2:]
  if name in OWN_FLAGS:
    assert {text.partition('=')[0] for text in given} <= set(OWN_FLAGS[name])
    return
  module = importlib.import_module(name)
  if given:
    assert command.parse(module._FLAGS, '', [name, *given]) == []


def check(arguments: list[str]) -> None:
  """Raises ValueError or fails if a command's flags do not exist or do not go together."""
  name = arguments[0].removesuffix('.py').replace('/', '.')
  given = arguments[1:]
  if name == 'scripts.train':
    resolve.resolve(flags.parse(['train.py', *given]))
  elif name == 'scripts.sweep':
    check_sweep(given)
  elif name == 'scripts.report':
    folders = command.parse(report._FLAGS, '', ['report.py', *given])
    assert folders, given
    values = flags.check(report._FLAGS, report._Report)
    report._options_of(report.catalog.FORMS[values.form], values)
  else:  # Another command of scripts/.
    assert command.parse(importlib.import_module(name)._FLAGS, '', [name, *given]) is not None


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
  for arguments in commands:
    if not is_program(arguments):
      check(arguments)
  for text in itertools.chain(*commands, *shown_commands(name, tmp_path, SMOKE='1')):
    flag, _, value = text.partition('=')
    if flag == '--output_dir':
      # A variable of run.sh that a function of studies.sh sets would put a folder into another.
      assert value.count(str(tmp_path)) <= 1
  assert not capsys.readouterr().err


def test_programs_accept_their_flags_and_a_smoke_writes_no_result(tmp_path):
  programs = 0
  for name in FOLDERS:
    for smoke in ('', '1'):
      commands = shown_commands(name, tmp_path, SMOKE=smoke)
      for arguments in filter(is_program, commands):
        check_program(arguments)
        programs += 1
      if smoke:
        texts = itertools.chain(*commands)
        assert not any('=results/' in text for text in texts), name
  assert programs > 10


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
  for name, given, said in (
    ('shakespeare', [], 'is no folder'),
    ('shakespeare', [str(tmp_path), 'sonnets'], 'unknown part sonnets'),
    ('stability', ['sonnets'], 'unknown part sonnets'),  # Which reads no data.
  ):
    script = str(studies.RESULTS / name / 'run.sh')
    result = subprocess.run(
      ['sh', script, *given], cwd=studies.ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count('\n') == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', FOLDERS)
def test_its_smoke_ends_well(name, tmp_path):
  from tests.helpers import task_data

  meta = studies.read(FOLDERS[name])
  missing = [
    file for file in meta['data'] if not os.path.exists(os.path.join(task_data.DATA_DIR, file))
  ]
  if missing:
    pytest.skip(f'{", ".join(missing)} not in {task_data.DATA_DIR}')
  before = {path: path.stat().st_mtime_ns for path in studies.RESULTS.rglob('*')}
  environment = {**os.environ, 'SMOKE': '1', 'RUNS': str(tmp_path / 'runs')}
  arguments = ['sh', str(studies.RESULTS / name / 'run.sh')]
  if meta['data']:  # Else the folder need not be there.
    arguments.append(task_data.DATA_DIR)
  result = subprocess.run(
    arguments,
    cwd=studies.ROOT,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr[-2000:]
  assert [*(tmp_path / 'runs_smoke' / 'results').iterdir()]
  assert before == {path: path.stat().st_mtime_ns for path in studies.RESULTS.rglob('*')}


def test_a_study_of_another_tensorflow_than_the_locked_one_has_a_star(tmp_path, monkeypatch):
  version = studies.read(studies.folders()[0])['versions']['tensorflow']
  monkeypatch.setattr(studies, 'ROOT', tmp_path)
  starred = []
  for locked in (version, '2.99.0'):
    (tmp_path / 'requirements.lock').write_text(f'x==1\ntensorflow=={locked} ; a != b \\\n')
    first = studies.table().splitlines()[2]
    starred.append(first.split('|')[4].endswith('\\* '))
  assert starred == [False, True]
