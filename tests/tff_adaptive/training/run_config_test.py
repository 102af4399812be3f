"""A program's run says what it was, so that reports and `load_run` read it as any other."""

import errno
import json
import os

import numpy as np
import pytest

import tff_adaptive
from scripts import report
from tests.helpers import fakes
from tff_adaptive import costs, population, registry, runs, training
from tff_adaptive._utils import atomic_files
from tff_adaptive.training import run_config


def train(folder, rounds=4, settings=None, run_id='', **options):
  config = training.TrainingConfig(rounds=rounds, clients_per_round=5, **options)
  return training.train(
    fakes.StatefulProcess(),
    fakes.Clients(),
    fakes.evaluate,
    config,
    output_dir=str(folder),
    run_id=run_id,
    show_progress=False,
    settings=settings,
  )


def read(folder):
  return json.loads((folder / 'config.json').read_text())


def test_a_programs_run_serves_load_run_and_the_report(tmp_path, capsys):
  for rate in (0.1, 0.3):
    for seed in (0, 1):
      settings = {'algorithm': 'scaffold', 'client_learning_rate': np.float64(rate).item()}
      result = train(tmp_path / 'runs' / f'{rate}_{seed}', seed=seed, settings=settings)
  run = tff_adaptive.load_run(str(tmp_path / 'runs' / '0.3_1'))
  np.testing.assert_array_equal(run.weights[0], result.state.global_model_weights[0])
  assert run.settings['client_learning_rate'] == 0.3
  assert run.config['data'] == {'clients': 20, 'examples': 80}
  assert run.config['versions']['numpy'] == np.__version__
  assert report.main(['report.py', str(tmp_path / 'runs')]) == 0
  assert '| client_learning_rate=0.3 | 2 | 4 |' in capsys.readouterr().out


def test_a_programs_folder_of_client_states_is_recorded_absolute(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  result = train(tmp_path / 'run', client_state_dir='states')
  monkeypatch.chdir('/')
  run = tff_adaptive.load_run(str(tmp_path / 'run'))
  np.testing.assert_array_equal(run.weights[0], result.state.global_model_weights[0])
  monkeypatch.chdir(tmp_path)
  config = read(tmp_path / 'run')
  config['settings']['client_state_dir'] = 'states'  # As an earlier version recorded it.
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(config))
  train(tmp_path / 'run', rounds=5, client_state_dir='states')
  assert read(tmp_path / 'run')['settings']['client_state_dir'] == str(tmp_path / 'states')


def test_runs_of_which_nothing_is_said_are_named_by_their_folders(tmp_path, capsys):
  train(tmp_path / 'a')
  train(tmp_path / 'b')
  assert report.main(['report.py', str(tmp_path)]) == 0
  assert {'| a |', '| b |'} <= {line[:5] for line in capsys.readouterr().out.splitlines()}


def test_a_resumed_run_notes_what_it_may_change_and_is_refused_the_rest(tmp_path):
  train(tmp_path, settings={'algorithm': 'mine', 'rates': [1, 2]})
  first = read(tmp_path)
  assert first['made_by'] == 'training.train'
  assert first['num_parameters'] == 3
  train(tmp_path, rounds=6, settings={'algorithm': 'mine', 'rates': (1, 2)})
  again = read(tmp_path)
  assert again['changes'][0]['rounds'] == [4, 6]
  assert again['settings']['rounds'] == 6
  assert again['started'] == first['started']
  files = {name: os.stat(tmp_path / name).st_mtime_ns for name in ('config.json', 'metrics.csv')}
  for options, words in (
    ({'settings': {'algorithm': 'other', 'rates': [1, 2]}}, "algorithm was 'mine' and is now 'oth"),
    ({'settings': {'algorithm': 'mine'}}, r'rates was \[1, 2\] and is now None'),
    ({'settings': {'algorithm': 'mine', 'rates': [1, 2]}, 'seed': 1}, 'seed was 0 and is now 1'),
  ):
    with pytest.raises(runs.ResumeError, match=words):
      train(tmp_path, rounds=8, **options)
  assert files == {name: os.stat(tmp_path / name).st_mtime_ns for name in files}


def test_a_commands_file_is_let_be(tmp_path):
  text = json.dumps({'run_id': 'x', 'settings': {'rounds': 9, 'seed': 7}, 'command': ['train.py']})
  (tmp_path / 'config.json').write_text(text)
  train(tmp_path, run_id='x')
  assert (tmp_path / 'config.json').read_text() == text


def test_what_cannot_be_recorded_is_refused_before_anything_is_written(tmp_path):
  for settings, words in (
    ({'rounds': 3}, "'rounds', which `config` says already"),
    ({'rate': object()}, r"settings\['rate'\] is <object"),
  ):
    with pytest.raises(ValueError, match=words):
      train(tmp_path / 'run', settings=settings)
  assert not (tmp_path / 'run').exists()
  (tmp_path / 'config.json').write_text('{')
  with pytest.raises(runs.ResumeError, match='cannot be read'):
    train(tmp_path)
  assert os.listdir(tmp_path) == ['config.json']


def cost_model(batch_size=2):
  return costs.CostModel(registry.algorithm('fed_avg').counts({}), 3, batch_size)


def test_what_costs_are_counted_by_is_no_setting():
  model = cost_model()
  config = training.TrainingConfig(rounds=1, clients_per_round=1, cost_model=model)
  settings = run_config.of_program(config, None)
  assert 'cost_model' not in settings
  assert settings['seed'] == 0


def test_with_a_population_another_cost_model_is_another_run(tmp_path):
  clients = population.Population(round_deadline=60.0)
  train(tmp_path, population=clients, cost_model=cost_model())
  assert read(tmp_path)['settings']['cost_model']['batch_size'] == 2
  train(tmp_path, rounds=5, population=clients, cost_model=cost_model(np.int64(2)))
  assert [list(change) for change in read(tmp_path)['changes']] == [['when', 'rounds']]
  with pytest.raises(runs.ResumeError, match=r"cost_model was .*'batch_size': 2.* and is now"):
    train(tmp_path, rounds=6, population=clients, cost_model=cost_model(1))
  earlier = read(tmp_path)
  del earlier['settings']['cost_model']
  (tmp_path / 'config.json').write_text(json.dumps(earlier))
  train(tmp_path, rounds=6, population=clients, cost_model=cost_model())
  assert read(tmp_path)['settings']['cost_model']['batch_size'] == 2


def test_numpys_numbers_are_recorded_as_pythons(tmp_path):
  options = {'seed': np.int64(3), 'max_examples_per_client': np.int32(4), 'target': np.float32(0.5)}
  for rounds in (np.int64(2), 3):
    train(tmp_path, rounds, **options)
  settings = read(tmp_path)['settings']
  assert (settings['seed'], settings['max_examples_per_client'], settings['target']) == (3, 4, 0.5)


@pytest.mark.parametrize('name', ['rounds', 'seed', 'max_examples_per_client', 'keep_checkpoints'])
def test_what_is_no_whole_number_is_refused_before_anything_is_written(tmp_path, name):
  with pytest.raises(TypeError, match=rf'{name} must be a whole number, found 2\.5: give'):
    train(tmp_path / 'run', **{name: 2.5})
  assert not (tmp_path / 'run').exists()


def test_examples_of_very_many_clients_are_not_counted(tmp_path, monkeypatch):
  monkeypatch.setattr(run_config, '_MOST_COUNTED', 19)  # There are 20.
  run_config.keep(str(tmp_path), {}, '', fakes.Clients(), [np.zeros(3)])
  assert read(tmp_path)['data'] == {'clients': 20}
  monkeypatch.setattr(run_config, '_MOST_COUNTED', 20)
  run_config.keep(str(tmp_path / 'few'), {}, '', fakes.Clients(), [np.zeros(3)])
  assert read(tmp_path / 'few')['data'] == {'clients': 20, 'examples': 80}


@pytest.mark.parametrize('has_links', [True, False])
def test_of_two_first_starts_at_once_one_makes_the_file(tmp_path, monkeypatch, has_links):
  def link(*unused):
    raise OSError(errno.EPERM, 'Operation not permitted')

  if not has_links:
    monkeypatch.setattr(os, 'link', link)
  assert run_config.create(str(tmp_path), {'run_id': 'first'})
  assert not run_config.create(str(tmp_path), {'run_id': 'second'})
  assert read(tmp_path) == {'run_id': 'first'}
  assert os.listdir(tmp_path) == ['config.json']


def test_a_file_that_cannot_be_filled_is_none(tmp_path, monkeypatch):
  def fails(*unused):
    raise OSError(errno.EPERM, 'Operation not permitted')

  with monkeypatch.context() as patched:
    patched.setattr(os, 'link', fails)
    patched.setattr(os, 'replace', fails)
    with pytest.raises(OSError, match='not permitted'):
      run_config.create(str(tmp_path), {})
  assert not os.listdir(tmp_path)


def test_what_a_killed_start_leaves_is_known_as_a_leftover(tmp_path, monkeypatch):
  with monkeypatch.context() as patched:
    patched.setattr(os, 'unlink', lambda *_: None)  # It was killed before.
    assert run_config.create(str(tmp_path), {})
  assert len(os.listdir(tmp_path)) == 2
  atomic_files.remove_leftovers(str(tmp_path), ['config.json'])
  assert os.listdir(tmp_path) == ['config.json']
