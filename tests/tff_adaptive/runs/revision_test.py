"""The git revision of a checkout."""

from tff_adaptive.runs import revision


def test_the_revision_is_gits_or_none_where_git_fails(tmp_path, monkeypatch):
  monkeypatch.setenv('PATH', str(tmp_path))
  monkeypatch.setattr(revision, '__file__', str(tmp_path / 'a' / 'runs' / 'revision.py'))
  (tmp_path / '.git').mkdir()
  scripts = {'exit 1': None, 'echo ab': 'ab+', '[ $3 = status ] || echo ab': 'ab'}
  for text, wanted in scripts.items():
    (tmp_path / 'git').write_text(f'#!/bin/sh\n{text}\n')
    (tmp_path / 'git').chmod(0o755)
    assert revision.git_revision.__wrapped__() == wanted
