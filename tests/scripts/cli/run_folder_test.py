"""A run's folder: config.json is made once, checked, and noted in."""

import os

import pytest

from scripts.cli import records, resolve, run_folder
from tff_adaptive.training import run_config


def record(**given):
  return records.of(resolve.resolve(**given))


def test_a_resumed_run_notes_what_changed(tmp_path):
  before, now = record(rounds=10), record(rounds=20)
  data = {'source': 'here', 'clients': 3, 'examples': 30}
  folder = str(tmp_path / 'new')
  config = run_folder.open_config(folder, before, data, 5, ['train.py'])
  assert run_folder.open_config(folder, now, data, 5, ['train.py', 'again']) == config
  run_folder.note_changes(folder, before)
  assert run_folder.read_config(folder, now) == config
  run_folder.note_changes(folder, now)
  again = run_folder.read_config(folder, now)
  assert again['changes'][0]['rounds'] == [10, 20]
  assert again['settings']['rounds'] == 20
  assert again['run_id'] == config['run_id']
  run_folder.open_config(folder, now, {**data, 'source': 'elsewhere'}, 5, [])
  with pytest.raises(ValueError, match='clients was 3 and is now 4'):
    run_folder.open_config(folder, now, {**data, 'clients': 4}, 5, [])


def test_of_two_starts_at_once_the_second_takes_the_run_of_the_first(tmp_path, monkeypatch):
  given = str(tmp_path), record(), {'clients': 3}, 5
  first = run_folder.open_config(*given, ['first'])
  reads = iter([lambda *_: None])  # The second looked before the first had written.
  read = run_folder.read_config
  monkeypatch.setattr(run_folder, 'read_config', lambda *a: next(reads, read)(*a))
  assert run_folder.open_config(*given, ['second']) == first
  assert read(*given[:2]) == first


def test_a_start_that_is_killed_while_it_writes_is_no_obstacle(tmp_path, monkeypatch):
  given = str(tmp_path / 'run'), record(), {'clients': 3}, 5, ['train.py']

  class KilledError(BaseException):
    pass

  def killed(*unused):
    raise KilledError

  with monkeypatch.context() as patch:
    patch.setattr(run_config, '_name', killed)
    patch.setattr(os, 'unlink', lambda path: None)  # Nobody tidies up.
    with pytest.raises(KilledError):
      run_folder.open_config(*given)
  assert [name[0] for name in os.listdir(given[0])] == ['.']
  config = run_folder.open_config(*given)
  assert run_folder.read_config(*given[:2]) == config


def test_folders_that_cannot_be_used_are_refused_and_not_made(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('x')
  with pytest.raises(ValueError, match='is not a folder'):
    run_folder.check_writable(str(tmp_path / 'file' / 'run'))
  monkeypatch.setattr('os.access', lambda path, mode: False)  # root may write anywhere.
  with pytest.raises(ValueError, match='cannot be written to'):
    run_folder.check_writable(str(tmp_path / 'run'))
  with pytest.raises(ValueError, match=r'not empty and holds no config\.json'):
    run_folder.read_config(str(tmp_path), record())
  deep = '[' * 100_000 + ']' * 100_000
  lacking = '{"settings": {}, "data": {}, "changes": [], "versions": {}}'
  for content in ('{', '[]', '{}', '{"settings": 3}', '3', deep, lacking, '\ufeff{}'):
    (tmp_path / 'config.json').write_text(content)
    with pytest.raises(ValueError, match='cannot be read'):
      run_folder.read_config(str(tmp_path), record())
  (tmp_path / 'summary.json').write_text('[]')
  assert not run_folder.is_complete(str(tmp_path), 1)
