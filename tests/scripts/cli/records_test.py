"""What a resumed run may change; a setting that is new counts as its default."""

import dataclasses

import pytest

from scripts.cli import records, resolve

_SOURCE = {'path': '/a/mine.py', 'sha256': 'abc'}


def record(**given):
  return records.of(resolve.resolve(**given))


def _config(of, files=None):
  return {'settings': dict(of.settings), **({'files': files} if files else {})}


def test_only_changes_that_matter_are_refused():
  before = record(rounds=10)
  now = record(rounds=20, rounds_per_checkpoint=3, output_dir='x', resume_from='previous')
  assert now.refused_changes(_config(before)) == []
  now = record(tau=0.5, seed=3)
  assert now.refused_changes(_config(before)) == [
    '--seed was 0 and is now 3',
    '--tau was 0.001 and is now 0.5',
  ]


def test_a_run_may_begin_on_a_cluster_and_go_on_without_one_and_the_reverse():
  pytest.importorskip('ray')
  with_ray, without = record(ray='local', ray_workers=2), record(subrounds=4)
  assert without.refused_changes(_config(with_ray)) == []
  assert with_ray.refused_changes(_config(without)) == []
  on_gpus = record(ray='local', gpus_per_worker=1.0)
  assert without.refused_changes(_config(on_gpus)) == ['--gpus_per_worker was 1.0 and is now None']
  for now, before, change in (
    (record(), with_ray, '4 and is now None (--subrounds=4 goes on, with --ray and without)'),
    (record(subrounds=5), with_ray, '4 and is now 5 (--subrounds=4 goes on, with'),
    (with_ray, record(), 'None and is now 4 (--ray divides a cohort: this run goes on without it)'),
  ):
    (text,) = now.refused_changes(_config(before))
    assert text.startswith(f'--subrounds was {change}')


def test_a_setting_that_an_earlier_version_did_not_have_counts_as_its_default():
  config = _config(record(algorithm='ada_best'))
  for name in ('beta_decay', 'weight_decay', 'mu', 'keep_checkpoints', 'algorithm_option'):
    del config['settings'][name]
  assert record(algorithm='ada_best').refused_changes(config) == []
  changed = record(algorithm='ada_best', beta_decay=0.5, weight_decay=0.1)
  assert sorted(changed.refused_changes(config)) == [
    '--beta_decay was 1.0 and is now 0.5',
    '--weight_decay was 0.0 and is now 0.1',
  ]


def test_a_folder_of_client_states_is_recorded_absolute(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  now = record(algorithm='scaffold', client_state_dir='cs')
  assert now.settings['client_state_dir'] == str(tmp_path / 'cs')
  config = _config(now)
  config['settings']['client_state_dir'] = 'cs'  # As an earlier version did.
  assert now.refused_changes(config) == []
  monkeypatch.chdir('/')
  (text,) = now.refused_changes(config)
  assert text == f"--client_state_dir was 'cs' and is now '{tmp_path}/cs'"
  assert now.refused_changes(_config(now)) == []


def test_a_folder_of_data_is_recorded_absolute_and_an_earlier_relative_one_is_no_other(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  now = record(task='emnist_cr', data_dir='data')
  assert now.settings['data_dir'] == str(tmp_path / 'data')
  config = _config(now)
  config['settings']['data_dir'] = 'data'
  assert now.refused_changes(config) == []


def test_of_a_users_file_the_content_counts_and_not_its_place():
  plain = record()
  settings = {**plain.settings, 'algorithm': 'b/mine.py:Mine'}
  now = dataclasses.replace(plain, settings=settings, files={'algorithm': _SOURCE})
  config = {'settings': {**settings, 'algorithm': 'a/mine.py:Mine'}}
  assert now.refused_changes({**config, 'files': {'algorithm': _SOURCE}}) == []
  changed = {'algorithm': {**_SOURCE, 'sha256': 'def'}}
  assert len(now.refused_changes({**config, 'files': changed})) == 1
  same_place = {'settings': settings, 'files': changed}
  (refused,) = now.refused_changes(same_place)
  assert refused == "the file of --algorithm, '/a/mine.py', was changed since"
  other = {
    'settings': {**settings, 'algorithm': 'b/mine.py:Other'},
    'files': {'algorithm': _SOURCE},
  }
  assert len(now.refused_changes(other)) == 1
