"""Folders that cannot be used are refused, and not made."""

import pytest

from scripts.cli import run_folder
from tff_adaptive.runs import config


def test_folders_that_cannot_be_used_are_refused_and_not_made(tmp_path, monkeypatch):
  record = config.Record({'rounds': 1})
  assert run_folder.read_config(str(tmp_path), record) is None
  (tmp_path / '.config.abcdefgh.json').write_text('')  # What a killed start left.
  assert run_folder.read_config(str(tmp_path), record) is None
  (tmp_path / 'file').write_text('x')
  with pytest.raises(ValueError, match=r'not empty and holds no config\.json'):
    run_folder.read_config(str(tmp_path), record)
  with pytest.raises(ValueError, match='is not a folder'):
    run_folder.check_writable(str(tmp_path / 'file' / 'run'))
  monkeypatch.setattr('os.access', lambda path, mode: False)  # root may write anywhere.
  with pytest.raises(ValueError, match='cannot be written to'):
    run_folder.check_writable(str(tmp_path / 'run'))
  assert not (tmp_path / 'run').exists()
