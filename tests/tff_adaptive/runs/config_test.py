"""config.json is made once, whole; a later start may change what changes no number."""

import json
import os

import pytest

from tests.helpers import run_folders
from tff_adaptive import runs
from tff_adaptive.runs import config
from tff_adaptive.runs.errors import RunFileError

_DATA = {'source': 'here', 'clients': 3, 'examples': 30}
_SOURCE = {'path': '/a/mine.py', 'sha256': 'abc'}


def record(files=(), **settings):
  settings = {'rounds': 10, 'seed': 0, 'target': None, **settings}
  return config.Record(settings, ('target', 'store'), dict(files), prefix='--')


def test_a_resumed_run_notes_what_changed(tmp_path):
  before = record({'start': _SOURCE}, start='a.npz')
  moved = {'start': {**_SOURCE, 'path': '/b.npz'}}
  now = record(moved, start='b.npz', rounds=20, target=0.5)
  folder = str(tmp_path / 'new')
  first = before.open(folder, _DATA, 5)
  assert now.open(folder, _DATA, 5) == first == config.read(folder)
  before.note_changes(folder)
  assert config.read(folder) == first  # There is nothing to note.
  now.note_changes(folder)
  again = config.read(folder)
  (noted,) = again['changes']
  changes = {'rounds': [10, 20], 'target': [None, 0.5], 'start': ['a.npz', 'b.npz']}
  assert noted == {'when': noted['when'], **changes}
  assert first['change_no_number'] == ['target']
  assert again == {**first, 'changes': [noted], 'settings': now.settings, 'files': moved}
  now.open(folder, {**_DATA, 'source': 'elsewhere'}, 5)
  with pytest.raises(runs.ResumeError, match='clients was 3 and is now 4'):
    now.open(folder, {**_DATA, 'clients': 4}, 5)


def test_only_changes_that_matter_are_refused():
  before = run_folders.config(record(store='memory').settings)
  now = record(rounds=20, target=0.5, store='disk')
  assert now.refused_changes(before) == []
  refused = record(seed=3, tau=0.5).refused_changes(before)
  assert refused == ['--seed was 0 and is now 3', '--tau was None and is now 0.5']
  fixed = config.Record(
    {**before['settings'], 'rounds': 20}, may_go_on=False, hints={'rounds': ' (why)'}
  )
  assert fixed.refused_changes(before) == ['rounds was 10 and is now 20 (why)']


def test_of_a_users_file_the_content_counts_and_not_its_place():
  settings = {'algorithm': 'b/mine.py:Mine', 'start': 'w.npz'}
  now = record({'algorithm': _SOURCE, 'start': _SOURCE}, **settings)

  def refused(name, value, file):
    before = run_folders.config(
      {**now.settings, name: value}, files={**now.files, name: {**_SOURCE, **file}}
    )
    return now.refused_changes(before)

  assert refused('algorithm', 'a/mine.py:Mine', {'path': 'a/mine.py'}) == []
  assert refused('start', 'elsewhere.npz', {'path': 'elsewhere.npz'}) == []
  assert refused('algorithm', 'b/mine.py:Mine', {'sha256': 'def', 'path': '/b'}) == [
    "the file of --algorithm, '/a/mine.py', has changed since"
  ]
  assert len(refused('algorithm', 'a/mine.py:Mine', {'sha256': 'def'})) == 1
  assert len(refused('algorithm', 'b/mine.py:Other', {})) == 1


def test_the_modules_that_a_users_file_imports_count_too():
  settings = {'algorithm': 'mine.py:Mine'}

  def record_with(**modules):
    return record({'algorithm': {**_SOURCE, **modules}}, **settings)

  now = record_with(modules={'helper.py': 'abc', 'other.py': 'x'})
  before = run_folders.config(now.settings, files=dict(now.files))
  assert now.refused_changes(before) == []
  for modules in ({'helper.py': 'def', 'other.py': 'x'}, {'other.py': 'x'}):
    assert record_with(modules=modules).refused_changes(before) == [
      "'helper.py', which the file of --algorithm, '/a/mine.py', imports, has changed since"
    ]
  before = run_folders.config(now.settings, files={'algorithm': _SOURCE})
  assert now.refused_changes(before) == []  # A run of 0.2.0 recorded no modules.
  nothing = record_with(modules={})
  before = run_folders.config(now.settings, files=dict(nothing.files))
  assert len(now.refused_changes(before)) == 1


def test_of_two_first_starts_at_once_the_second_takes_the_run_of_the_first(tmp_path, monkeypatch):
  folder = str(tmp_path)
  first = record().open(folder, _DATA, 5)
  reads = iter([FileNotFoundError])  # The second looked before the first had written.
  read = config.read

  def late(folder):
    for error in reads:
      raise error
    return read(folder)

  monkeypatch.setattr(config, 'read', late)
  assert record().open(folder, _DATA, 5) == first == read(folder)
  assert os.listdir(folder) == ['config.json']


def _changed(**changes):
  return json.dumps({**run_folders.config({}), **changes})


@pytest.mark.parametrize(
  'text, words',
  [
    ('{', 'line 1 column 2'),
    ('[]', 'its format is None'),
    ('[' * 100_000, 'recursion'),
    (_changed(format=2), 'its format is 2, this version reads 1'),
    ('{"settings": {"rounds": 4}}', 'its format is None, .* that wrote it'),
    (_changed(settings=1), 'its settings is 1'),
    (_changed(settings={}), "it has no 'rounds'"),
    (_changed(settings={'rounds': '4'}), "its rounds are '4'"),
    (_changed(settings={'rounds': 4, 'seed': [1, 2]}), r'its seed is \[1, 2\]'),
    (_changed(files={'task': 3}), r'its files are \[3\]'),
    (_changed(change_no_number=[['ray']]), r"its change_no_number \[\['ray'\]\]"),
    (_changed(run_id=None), 'its run_id is None'),
  ],
)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, text, words):
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(RunFileError, match=words) as caught:
    config.read(str(tmp_path))
  assert str(caught.value).startswith(f'{tmp_path}/config.json cannot be read (')
  assert str(caught.value).endswith('restore the file, or name another folder.')
