"""Which runs are repetitions of each other, and what tells the others apart."""

import dataclasses

import pytest

from tests.helpers import run_folders
from tff_adaptive.runs import groups as groups_lib, run as run_lib


def _make(folder, settings, files=None):
  folder.mkdir(exist_ok=True)
  run_folders.write_config(folder, {'rounds': 4, **settings}, files=files or {})
  (folder / 'metrics.csv').write_text('round,validation_loss\n0,1.0\n')
  return run_lib.load_run(str(folder))


@pytest.mark.parametrize(
  'name, values, labels',
  [
    ('server_optimizer', ['sgd', 'adam'], ['server_optimizer=sgd', 'server_optimizer=adam']),
    ('layers_option', [[1, 2], [3]], ['1, 2', '3']),  # A program's may be lists of numbers.
    ('rates', [None, None], ['0', '1']),  # Of which nothing is said: the folders.
    # Drawn numbers have four digits, unless that makes two labels the same.
    ('tau', [0.04043878009515104, 1.2345678901234e-05], ['tau=0.04044', 'tau=1.235e-05']),
    ('tau', [0.123456, 2.0], ['tau=0.123456', 'tau=2.0']),
    (
      'tau',
      [0.04043878009515104, 0.04043878009515105],
      ['tau=0.04043878009515104', 'tau=0.04043878009515105'],
    ),
  ],
)
def test_labels_are_what_differs_also_of_runs_without_an_algorithm(tmp_path, name, values, labels):
  for i, value in enumerate(values):
    _make(tmp_path / str(i), {'seed': 0, name: value})
  assert list(groups_lib.group(run_lib.find_runs([str(tmp_path)]))) == labels


def test_a_run_that_repeats_another_one_counts_once(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  _make(tmp_path / 'a', {'seed': 0})
  for number, path in enumerate(('a/config.json', 'a')):
    _make(tmp_path / f'a_{number}', {'seed': 0, 'config': path})
  _make(tmp_path / 'other', {'seed': 0, 'config': 'elsewhere/config.json'})
  runs = run_lib.find_runs(['.'])
  assert [run.folder for run in runs] == ['./a', './other']
  said = capsys.readouterr().err
  assert said == 'Left out: ./a_0 repeats ./a.\nLeft out: ./a_1 repeats ./a.\n'
  # Alone it is a run like any other.
  assert len(run_lib.find_runs(['a_0'])) == 1


def _of_file(folder, path, sha256=None, name='task', **settings):
  settings = {'algorithm': 'fed_avg', name: path, **settings}
  if sha256:
    files = {name: {'path': path.partition(':')[0], 'sha256': sha256}}
  else:
    files = {}
  return _make(folder, settings, files)


@pytest.mark.parametrize('name', ['task', 'algorithm', 'server_optimizer'])
@pytest.mark.parametrize('digests', [('a' * 64, 'b' * 64), (None, None)])
def test_files_of_one_name_in_two_folders_are_two_settings(tmp_path, name, digests):
  runs = [
    _of_file(tmp_path / str(seed), f'/s{seed}/t.py:binary', digest, name, seed=seed, mu=None)
    for seed, digest in enumerate(digests)
  ]
  labels = [f'{name}=/s0/t.py:binary', f'{name}=/s1/t.py:binary']
  assert list(groups_lib.group(runs)) == labels
  assert list(groups_lib.group(runs, [name, 'mu'])) == labels


def test_a_file_that_was_moved_is_one_setting_and_one_that_was_changed_is_two(tmp_path):
  paths = ('/s0/t.py:f', '/s1/t.py:f', '/s0/t.py:f')
  runs = [
    _of_file(tmp_path / str(seed), path, digest * 64, seed=seed)
    for seed, (path, digest) in enumerate(zip(paths, 'aab'))
  ]
  assert [len(members) for members in groups_lib.group(runs[:2]).values()] == [2]
  groups = groups_lib.group(runs)
  assert list(groups) == ['task=/s0/t.py:f', 'task=/s0/t.py:f (sha256 bbbbbbbb)']
  assert [len(members) for members in groups.values()] == [2, 1]


def test_options_of_one_name_are_those_of_what_they_are_for(tmp_path):
  runs = []
  for seed, name in enumerate(('task_option', 'algorithm_option')):
    settings = {'seed': seed, 'task_option': [], 'algorithm_option': []}
    runs.append(_make(tmp_path / name, {**settings, name: ['a=1']}))
  groups = groups_lib.group(runs, ['task_option', 'algorithm_option'])
  assert list(groups) == ['task_option=a=1', 'algorithm_option=a=1']


def _settings(folder, **settings):
  return _make(folder, {'algorithm': 'fed_avg', **settings})


@pytest.mark.parametrize(
  'conditions, count',
  [
    ([('task_option', 'alpha=0.5')], 1),
    ([('task_option', 'alpha=0.5'), ('task_option', 'n=3')], 1),
    *(([('scale_mu', value)], 1) for value in ('true', 'False', 'none')),
    ([('task_option', 'none')], 1),
    ([('tau', '1e-2')], 3),
  ],
)
def test_conditions_are_met_by_options_truth_values_and_numbers(tmp_path, conditions, count):
  runs = [
    _settings(tmp_path / str(i), seed=i, task_option=options, scale_mu=scale, tau=0.01)
    for i, (options, scale) in enumerate(
      ((['alpha=0.5', 'n=3'], True), (['alpha=5'], False), ([], None))
    )
  ]
  assert len(groups_lib.where(runs, conditions)) == count
  with pytest.raises(ValueError, match='none of the 3 runs has seed=0 and seed=1'):
    groups_lib.where(runs, [('seed', '0'), ('seed', '1')])


def test_a_copy_of_a_run_is_refused_with_what_helps(tmp_path):
  runs = [_settings(tmp_path / name, seed=0, tau=tau) for name, tau in (('a', 1), ('b', 1))]
  with pytest.raises(ValueError, match=r'/a and .*/b\. Name one of their folders only'):
    groups_lib.group(runs)
  runs.append(_settings(tmp_path / 'c', seed=0, tau=2))
  with pytest.raises(ValueError, match='differ in tau: label by it too'):
    groups_lib.group(runs[1:], ['algorithm'])


def test_an_algorithm_of_ones_own_has_its_name_and_any_label_can_be_another(tmp_path):
  runs_of_files = []
  for number, name in enumerate(('mine', 'fed_cm', 'FedCM', None)):
    files = {'algorithm': {'path': '/s/m.py', 'sha256': str(number), 'name': name}}
    files['algorithm'] = {k: v for k, v in files['algorithm'].items() if v}
    settings = {'algorithm': f'/s/m.py:A{number}', 'server_optimizer': 'yogi' if number else 'sgd'}
    runs_of_files.append(_make(tmp_path / str(number), settings, files))
  runs_of_files.append(_make(tmp_path / 'own', {'algorithm': 'fed_cm', 'server_optimizer': 'sgd'}))
  # What the package has too is told apart from it by the file.
  labels = ['mine', 'fed_cm (m.py) x Yogi', 'FedCM (m.py) x Yogi', 'm.py:A3 x Yogi', 'FedCM']
  assert list(groups_lib.group(runs_of_files, ['algorithm', 'server_optimizer'])) == labels
  runs = [
    _make(tmp_path / f'r{rate}', {'algorithm': 'fed_avg', 'client_learning_rate': rate})
    for rate in (0.1, 1.0)
  ]
  for renamed, labels in (
    ({'mine': 'Ours', 'client_learning_rate=0.1': 'slow'}, ['Ours', 'FedAvg, slow']),
    ({'FedAvg, client_learning_rate=0.1': 'best'}, ['mine', 'best']),
  ):
    relabelled = [dataclasses.replace(run, renamed=renamed) for run in [runs_of_files[0], *runs]]
    by = ['algorithm', 'client_learning_rate']
    assert list(groups_lib.group(relabelled, by)) == [*labels, 'FedAvg, client_learning_rate=1.0']


def test_runs_of_a_sweep_over_options_are_labelled_by_them(tmp_path):
  settings = [
    {'cohort': 'uniform', 'cohort_option': []},
    {'cohort': 'power_of_choice', 'cohort_option': ['candidates=4']},
    {'cohort': 'power_of_choice', 'cohort_option': ['candidates=8']},
  ]
  runs = run_folders.each(tmp_path, [(0.5, options) for options in settings])
  assert list(groups_lib.group(runs)) == [
    'cohort=uniform',
    'cohort=power_of_choice, candidates=4',
    'cohort=power_of_choice, candidates=8',
  ]
