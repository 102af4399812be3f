"""Damaged folders of runs are refused by name, with no traceback."""

import json

import pytest

from tff_adaptive.reports import runs

GOOD = {'settings': {'rounds': 4, 'seed': 0}}


def _make(folder, config=None, metrics='round,validation_loss\n0,1.0\n'):
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(GOOD) if config is None else config)
  (folder / 'metrics.csv').write_text(metrics)
  return str(folder)


def test_a_folder_without_a_config_is_named_with_the_reason(tmp_path):
  with pytest.raises(ValueError, match=r'of a run \(it has no config.json\)'):
    runs.read_run(str(tmp_path))
  with pytest.raises(ValueError, match=r'of a run \(there is no such folder\)'):
    runs.read_run(str(tmp_path / 'run'))


@pytest.mark.parametrize(
  'config',
  [
    '{',
    '7',
    '[]',
    '{}',
    'null',
    '{"settings": 1}',
    '{"settings": {}}',
    '{"settings": {"rounds": "4"}}',
    '{"settings": {"rounds": null}}',
    '{"settings": ["rounds"]}',
    '[' * 100_000,
  ],
)
def test_a_damaged_config_is_refused(tmp_path, config):
  folder = _make(tmp_path / 'run', config)
  with pytest.raises(ValueError, match=f'^{folder} is not the folder of a run'):
    runs.find_runs([str(tmp_path)])


@pytest.mark.parametrize('metrics', ['\ufeffround\n0\n', 'a,b\n0,1\n', 'round,a\n0,x\n', '0\n\n'])
def test_damaged_rows_are_refused(tmp_path, metrics):
  folder = _make(tmp_path / 'run', metrics=metrics)
  with pytest.raises(
    ValueError, match=f'^{folder} is not the folder of a run .*metrics.csv is dam'
  ):
    runs.find_runs([str(tmp_path)])


@pytest.mark.parametrize('name', ['config.json', 'metrics.csv'])
def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path, name):
  folder = _make(tmp_path / 'run')
  (tmp_path / 'run' / name).unlink()
  (tmp_path / 'run' / name).mkdir()
  with pytest.raises(ValueError, match=folder):
    runs.read_run(folder)


def _labels(folder, rates):
  folder.mkdir()
  for number, rate in enumerate(rates):
    settings = {'rounds': 4, 'seed': 0, 'algorithm': 'fed_avg', 'client_learning_rate': rate}
    _make(folder / f'{number}', json.dumps({'settings': settings}))
  return list(runs.group(runs.find_runs([str(folder)])))


def test_drawn_numbers_have_four_digits_in_labels_unless_that_makes_two_the_same(tmp_path):
  found = _labels(tmp_path / 'a', [0.04043878009515104, 1.2345678901234e-05, 0.123456])
  assert found == [f'client_learning_rate={text}' for text in ('0.04044', '1.235e-05', '0.123456')]
  alike = [0.04043878009515104, 0.04043878009515105]
  assert _labels(tmp_path / 'b', alike) == [f'client_learning_rate={rate}' for rate in alike]


def test_runs_without_an_algorithm_have_labels_too(tmp_path):
  for name, server in (('a', 'sgd'), ('b', 'adam')):
    config = {'settings': {'rounds': 4, 'seed': 0, 'server_optimizer': server}}
    _make(tmp_path / name, json.dumps(config))
  assert list(runs.group(runs.find_runs([str(tmp_path)]))) == [
    'server_optimizer=sgd',
    'server_optimizer=adam',
  ]
