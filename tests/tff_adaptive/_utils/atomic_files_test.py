"""A power loss leaves the old file or the new one: what is on the disk when."""

import os

from tff_adaptive._utils import atomic_files


def test_a_file_is_on_the_disk_before_it_replaces_another_and_its_folder_after(
  tmp_path, monkeypatch
):
  events, fsync = [], os.fsync

  def spy(descriptor):
    events.append(os.readlink(f'/proc/self/fd/{descriptor}'))
    fsync(descriptor)

  def place(temporary, path):
    events.append((temporary, path))
    os.replace(temporary, path)

  monkeypatch.setattr(os, 'fsync', spy)
  path = str(tmp_path / 'a.txt')
  atomic_files.write_text(path, 'ä\n', place)
  temporary = events[0]
  assert events == [temporary, (temporary, path), str(tmp_path)]
  assert os.path.dirname(temporary) == str(tmp_path)
  assert (os.listdir(tmp_path), (tmp_path / 'a.txt').read_bytes()) == (['a.txt'], b'\xc3\xa4\n')
