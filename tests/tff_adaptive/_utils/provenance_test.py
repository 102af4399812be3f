"""The revision of a checkout that git cannot read is None, not an empty text."""

from tff_adaptive._utils import provenance


def test_where_git_fails_there_is_no_revision(tmp_path, monkeypatch):
  (tmp_path / 'git').write_text('#!/bin/sh\nexit 1\n')
  (tmp_path / 'git').chmod(0o755)
  monkeypatch.setenv('PATH', str(tmp_path))
  assert provenance.git_revision.__wrapped__() is None
