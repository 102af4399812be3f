"""A run of the bench, against NumPy; and a user's method from its file to the page."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from scripts import bench
from scripts.comparison import methods, problems, rows, runs

PLAIN = """
import dataclasses

from tff_adaptive.corrections import base


@dataclasses.dataclass(frozen=True)
class Plain(base.Correction):
  def gradient(self, client, theta, g):
    return g
"""


def short(monkeypatch, name, rounds, *flags):
  """Makes a problem of few rounds, each of which is evaluated."""
  problem = problems.PROBLEMS[name]
  more = (f'--rounds={rounds}', '--rounds_per_evaluation=1', *flags)
  changed = dataclasses.replace(problem, flags=(*problem.flags, *more))
  monkeypatch.setattr(problems, 'PROBLEMS', {**problems.PROBLEMS, name: changed})


def test_least_squares_is_that_of_numpy(monkeypatch):
  short(monkeypatch, 'least_squares', 3, '--clients_per_round=10')
  key = rows.Key('least_squares', 'fed_avg', 'small', rows.FINAL, 2)
  row = runs.train(key, methods.Method('fed_avg'), {'client_learning_rate': 0.1}, None)
  task = tasks.load('least_squares', seed=2, num_clients=10, columns=10)
  clients = [task.train.load(name) for name in task.train.client_ids]
  every = task.train.load_all()
  optimum = np.linalg.lstsq(every['x'].astype(float), every['y'].astype(float), rcond=None)[0]
  w = start = task.build_model(2).initial_weights[0][0].astype(float)
  expected = [0.0]
  for _ in range(3):
    trained = []
    for client in clients:
      theta = w
      for _ in range(5):
        theta = theta - 0.1 * client['x'].T @ (client['x'] @ theta - client['y'])
      trained.append(theta)
    w = np.mean(trained, axis=0)
    distance = np.linalg.norm(w - optimum) / np.linalg.norm(start - optimum)
    expected.append(np.log10(distance))
  np.testing.assert_allclose(row.evaluations, expected, atol=1e-4)
  assert row.value == pytest.approx(np.mean(expected[-2:]), abs=1e-4)
  assert row.area == pytest.approx(np.mean(expected[1:]), abs=1e-4)
  assert row.gradients == 3 * 10 * 5
  assert row.megabytes == pytest.approx(3 * 10 * 2 * 10 * 4 / 1e6)
  # The same row again; and a rate with which it diverges.
  again = runs.train(key, methods.Method('fed_avg'), row.settings, None)
  assert again.curve == row.curve
  far = runs.train(key, methods.Method('fed_avg'), {'client_learning_rate': 1e4}, None)
  assert (far.status, np.isnan(far.value)) == (rows.DIVERGED, True)


def test_what_has_no_meaning_is_refused_and_a_users_error_names_the_line(tmp_path):
  key = rows.Key('least_squares', 'moon', 'small', rows.SEARCH, 0)
  point = {'client_learning_rate': 0.1}
  row = runs.train(key, methods.Method('moon'), point, None)
  assert row.status == rows.REFUSED
  assert row.reason
  file = tmp_path / 'wrong.py'
  file.write_text(PLAIN.replace('return g', 'return h'))
  method = methods.Method(f'{file}:Plain')
  with pytest.raises(ValueError, match=r'wrong.py, line 10, failed on the problem least_squares:'):
    runs.train(key._replace(method=method.key), method, point, None)


def test_a_users_part_that_asks_for_what_a_problem_has_not_is_refused_there(tmp_path, monkeypatch):
  """As the built-in MOON is: the page says so, and the other problems go on."""
  short(monkeypatch, 'least_squares', 1)
  file = tmp_path / 'looks.py'
  compares = (
    'def loss(self, client, batch):\n    return batch.mean(batch.features_at(batch.theta)[:, 0])'
  )
  file.write_text(PLAIN[: PLAIN.index('  def ')] + f'  {compares}\n')
  method = methods.Method(f'{file}:Plain')
  key = rows.Key('least_squares', method.key, 'small', rows.FINAL, 1)
  row = runs.train(key, method, {'client_learning_rate': 0.1}, None)
  assert row.status == rows.REFUSED
  assert 'the model gives no features' in row.reason


def test_a_run_has_diverged_if_an_evaluation_of_its_value_is_not_finite():
  recorded = [{'validation_loss': 1.0}, {'validation_loss': 0.5}]
  summary = {'ends_without_update': False}
  assert runs._divergence(recorded, [0.1, np.nan, 0.7, 0.8], summary) == ''
  assert runs._divergence(recorded, [0.1, 0.5, np.nan, 0.8], summary) == 'the model is not finite'


def test_the_guides_class_halves_the_rate(monkeypatch, tmp_path):
  page = pathlib.Path(bench.__file__).parents[1] / 'docs' / 'guide' / 'bench.md'
  [text] = re.findall(r'```python\n(.*?)```', page.read_text('utf-8'), re.DOTALL)
  file = tmp_path / 'mine.py'
  file.write_text(text)
  short(monkeypatch, 'least_squares', 2)
  curves = []
  for method, rate in ((methods.Method(f'{file}:Damped'), 0.2), (methods.Method('fed_avg'), 0.1)):
    key = rows.Key('least_squares', method.key, 'small', rows.FINAL, 1)
    curves.append(runs.train(key, method, {'client_learning_rate': rate}, None).evaluations)
  np.testing.assert_allclose(curves[0], curves[1], atol=1e-5)


def test_held_out_examples_judge_the_trials_and_the_validation_data_what_counts(monkeypatch):
  problem = dataclasses.replace(
    problems.PROBLEMS['tumours'],
    metric='accuracy',
    tuning=('--heldout_examples=0.2', '--rounds_per_client_evaluation=1'),
    tuning_column='clients_heldout_accuracy_mean',
  )
  monkeypatch.setattr(problems, 'PROBLEMS', {'tumours': problem})
  short(monkeypatch, 'tumours', 2)
  method = methods.Method('fed_avg')
  point = {'client_learning_rate': 0.1}
  for stage in (rows.SEARCH, rows.FINAL):
    row = runs.train(rows.Key('tumours', 'fed_avg', 'small', stage, 1), method, point, None)
    # Runs that count hold no examples out, so they have no column of these.
    assert (row.status, row.reason) == (rows.DONE, '')


def test_the_embedded_tasks_evaluate_other_examples_than_they_train_on():
  path = problems.PROBLEMS['sonnets'].flags[0].removeprefix('--task=')
  tuning = tasks.load(path, seed=1, part='tuning')
  test = tasks.load(path, seed=2, part='test')
  assert len(test.train.client_ids) == 16
  inputs = test.train.load('04')['x'].reshape(-1, 6, 32)
  letters = " 'abcdefghijklmnopqrstuvwxyz,.-\n"
  beginning = ''.join(letters[i] for i in inputs[0].argmax(axis=1))
  assert beginning == 'shall '
  assert letters[test.train.load('04')['y'][0]] == 'i'
  assert len(tuning.validation['y']) != len(test.validation['y'])
  path = problems.PROBLEMS['tumours'].flags[0].removeprefix('--task=')
  parts = [tasks.load(path, seed=1, part=part) for part in ('tuning', 'test')]
  sizes = [len(part.validation['y']) for part in parts]
  train = parts[0].train.load_all()
  assert len(train['y']) + sum(sizes) == 569
  rows_of = [np.unique(train['x'], axis=0)]
  rows_of += [np.unique(part.validation['x'], axis=0) for part in parts]
  assert len(np.unique(np.concatenate(rows_of), axis=0)) == sum(map(len, rows_of))
  np.testing.assert_allclose(train['x'].mean(axis=0), 0, atol=1e-5)
  np.testing.assert_allclose(train['x'].std(axis=0), 1, rtol=1e-4)


@pytest.mark.exhaustive
def test_a_users_file_gets_its_page_on_two_problems(monkeypatch, tmp_path, capsys):
  for name in ('least_squares', 'tumours'):
    short(monkeypatch, name, 2)
  budget = methods.Budget(2, (1, 2), False, 'two rates')
  monkeypatch.setattr(methods, 'BUDGETS', {'small': budget})
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'plain.py').write_text(PLAIN)
  command = ['bench.py', '--problems=least_squares,tumours', '--rows=none.csv']
  assert bench.main([*command, 'plain.py:Plain', '--algorithm=fed_avg', '--output_dir=out']) == 0
  printed = capsys.readouterr().out
  assert '| least squares' in printed
  whole = rows.read('out/rows.csv')
  assert len(whole) == 2 * 2 * 4
  for key, row in whole.items():  # The class changes nothing of FedAvg but the order of products.
    if key.method == 'fed_avg':
      of_class = whole[key._replace(method='plain.py:Plain')]
      np.testing.assert_allclose(of_class.evaluations, row.evaluations, rtol=0, atol=1e-5)
