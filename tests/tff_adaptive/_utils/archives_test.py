"""What an archive of arrays declares is held against what it can hold."""

import zipfile

import numpy as np
import pytest

from tff_adaptive._utils import archives


@pytest.mark.parametrize('write', [np.savez, np.savez_compressed])
def test_sound_arrays_are_read_in_their_order(tmp_path, write):
  path, arrays = str(tmp_path / 'a.npz'), {'b': np.zeros([3, 400]), 'a': np.arange(4, dtype='>i2')}
  write(path, **arrays)
  with zipfile.ZipFile(path) as archive:
    entries = archives.entries(archive, path)
    assert list(entries) == ['b.npy', 'a.npy']
    for name, entry in entries.items():
      archives.check_array(archive, entry)
      found = archives.read_array(archive, entry)
      assert found.dtype == arrays[name[0]].dtype
      np.testing.assert_array_equal(found, arrays[name[0]])


def test_an_entry_may_declare_what_deflate_makes_of_a_byte_and_no_more():
  entry = zipfile.ZipInfo('a.npy')
  for kind, most in ((zipfile.ZIP_STORED, 100), (zipfile.ZIP_DEFLATED, 103_200)):
    entry.compress_type, entry.compress_size, entry.file_size = kind, 100, most
    archives.check_size(entry, 100)
    entry.file_size += 1
    with pytest.raises(ValueError, match=f'declares {most + 1:,} bytes, which a file of 100'):
      archives.check_size(entry, 100)
  entry.file_size = 100
  with pytest.raises(ValueError, match='a file of 99 cannot hold'):
    archives.check_size(entry, 99)
  for flags, kind in ((1, zipfile.ZIP_STORED), (0, zipfile.ZIP_LZMA)):
    entry.flag_bits, entry.compress_type = flags, kind
    with pytest.raises(ValueError, match='encrypted or compressed by other means'):
      archives.check_size(entry, 100)


def test_there_are_as_many_entries_as_may_be(tmp_path, monkeypatch):
  path = str(tmp_path / 'a.npz')
  np.savez(path, *np.zeros([3, 1]))
  with zipfile.ZipFile(path) as archive:
    monkeypatch.setattr(archives, 'MOST_ENTRIES', 3)
    assert len(archives.entries(archive, path)) == 3
    monkeypatch.setattr(archives, 'MOST_ENTRIES', 2)
    with pytest.raises(ValueError, match='it has 3 entries; there may be 2'):
      archives.entries(archive, path)
