"""What a command records of a run's settings, and which of them a resumed run may change."""

import pytest

from scripts.cli import records, resolve
from tests.helpers import run_folders
from tff_adaptive.runs import config


def record(**given):
  return records.of(resolve.resolve(**given))


def _config(of):
  return run_folders.config(of.settings, files=of.files)


def test_what_changes_no_number_may_change_and_paths_are_absolute(tmp_path, monkeypatch):
  before = _config(record(rounds=10))
  assert record(rounds=20, output_dir='x', parallel_clients=2).refused_changes(before) == []
  assert record(tau=0.5, seed=3).refused_changes(before) == [
    '--seed was 0 and is now 3',
    '--tau was 0.001 and is now 0.5',
  ]
  monkeypatch.chdir(tmp_path)
  now = record(task='emnist_cr', data_dir='data')
  assert now.settings['data_dir'] == str(tmp_path / 'data')


def test_a_run_may_begin_on_a_cluster_and_go_on_without_one_and_the_reverse():
  pytest.importorskip('ray')
  with_ray = record(ray='local', ray_workers=2)
  without = record(subrounds=4)
  assert without.refused_changes(_config(with_ray)) == []
  assert with_ray.refused_changes(_config(without)) == []
  on_gpus = record(ray='local', gpus_per_worker=1.0)
  assert without.refused_changes(_config(on_gpus)) == ['--gpus_per_worker was 1.0 and is now None']
  (text,) = record().refused_changes(_config(with_ray))
  assert text == (
    '--subrounds was 4 and is now None (a run keeps its subrounds, with --ray and without)'
  )


def test_folders_that_cannot_be_used_are_refused_and_not_made(tmp_path):
  record = config.Record({'rounds': 1})
  records.check_folder(str(tmp_path / 'run'), record)
  assert not (tmp_path / 'run').exists()
  (tmp_path / '.config.abcdefgh.json').write_text('')  # What a killed start left.
  records.check_folder(str(tmp_path), record)
  (tmp_path / 'file').write_text('x')
  with pytest.raises(ValueError, match=r'not empty and holds no config\.json'):
    records.check_folder(str(tmp_path), record)
  for folder in (f'{tmp_path}/file/run', '/proc/run'):
    with pytest.raises(ValueError, match=f'--output_dir={folder} cannot be written to'):
      records.check_folder(folder, record)
