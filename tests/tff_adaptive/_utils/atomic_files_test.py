"""A power loss leaves the old file or the new one: what is on the disk when."""

import os

import psutil

from tff_adaptive._utils import atomic_files


def test_a_file_is_on_the_disk_before_it_replaces_another_and_its_folder_after(
  tmp_path, monkeypatch
):
  events = []
  fsync = os.fsync

  def spy(descriptor):
    events.append(os.readlink(f'/proc/self/fd/{descriptor}'))
    fsync(descriptor)

  def place(temporary, path):
    events.append((temporary, path))
    os.replace(temporary, path)

  monkeypatch.setattr(os, 'fsync', spy)
  path = str(tmp_path / 'a.txt')
  umask = os.umask(0o026)
  try:
    atomic_files.write_text(path, 'ä\n', place)
  finally:
    mode = os.umask(umask)
  assert (mode, os.stat(path).st_mode & 0o777) == (0o026, 0o640)
  temporary = events[0]
  assert events == [temporary, (temporary, path), str(tmp_path)]
  assert os.path.dirname(temporary) == str(tmp_path)
  assert not [file for file in psutil.Process().open_files() if file.path == path]
  with open(temporary, 'x'):  # As if its process had been killed.
    atomic_files.remove_leftovers(str(tmp_path), ['a.txt'])
  assert (os.listdir(tmp_path), (tmp_path / 'a.txt').read_bytes()) == (['a.txt'], b'\xc3\xa4\n')
  atomic_files.write_json(path, {'a': 1})
  assert (tmp_path / 'a.txt').read_text() == '{\n  "a": 1\n}\n'
