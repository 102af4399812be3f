"""A run's folder holds the user's files, with modules where the copies find them."""

import hashlib

from scripts.cli import stored_files
from tff_adaptive._utils import user_files
from tff_adaptive.training import callbacks


def _entry(path, modules):
  digests = {}
  for relative in modules:
    content = (path.parent / relative).read_bytes()
    digests[relative] = hashlib.sha256(content).hexdigest()
  sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
  return {'path': str(path), 'sha256': sha256, 'modules': digests}


def test_modules_of_other_folders_are_copied_beside_the_file(tmp_path, monkeypatch):
  for folder in ('own', 'shared/tools', 'run'):
    (tmp_path / folder).mkdir(parents=True)
  file = tmp_path / 'own' / 'task.py'
  file.write_text('import helper, tools.more\n')
  (tmp_path / 'own' / 'helper.py').write_text('A = 1\n')
  (tmp_path / 'shared' / 'tools' / 'more.py').write_text('B = 2\n')
  monkeypatch.syspath_prepend(str(tmp_path / 'shared'))
  entry = _entry(file, ['helper.py', '../shared/tools/more.py'])
  said = []
  run = callbacks.RunInfo(str(tmp_path / 'run'), 0, 1, said.append)
  stored_files.StoreFiles({'task': entry, 'availability': {'path': 'x', 'sha256': ''}}).begin(run)
  copies = tmp_path / 'run' / 'files'
  names = sorted(str(path.relative_to(copies)) for path in copies.rglob('*.py'))
  assert names == ['task/helper.py', 'task/task.py', 'task/tools/more.py']
  assert said == []
  assert user_files.is_unchanged(entry)
  assert user_files.copy_of(str(tmp_path / 'run'), 'task', entry) == str(copies / 'task/task.py')

  (tmp_path / 'own' / 'helper.py').write_text('A = 3\n')
  (copies / 'task' / 'helper.py').unlink()
  (copies / 'task' / 'task.py').write_text('damaged\n')
  assert not user_files.is_unchanged(entry)
  assert user_files.copy_of(str(tmp_path / 'run'), 'task', entry) is None
  stored_files.StoreFiles({'task': entry}).begin(run)
  assert len(said) == 1
  assert 'helper.py' in said[0]
  assert 'the run has no copy of it' in said[0]
