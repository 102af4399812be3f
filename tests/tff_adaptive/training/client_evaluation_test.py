"""Evaluation by client in a run: columns and a file, from NumPy client by client."""

import csv
import glob
import os
from unittest import mock

import numpy as np
import pytest
from sklearn import metrics as sk

import oracle
import tff_adaptive_tasks as tasks
from tests.helpers import fakes, small_problem
from tests.tff_adaptive.runs import run_test
from tff_adaptive import models as models_lib
from tff_adaptive.models import client_evaluation as models
from tff_adaptive.training import client_evaluation, client_source, cohorts

PROCESS = run_test.Process(run_test.State)


def clients(letters='=bcdefg', most=None):
  """The small problem's, by letter."""
  data = zip('=bcdefg', small_problem.clients())
  arrays = {c: (x[:most], y[:most]) for c, (x, y) in data if c in letters}
  return tasks.InMemoryClientData(arrays)


def accuracies(theta, data):
  w, a, v, c = oracle.unpack(theta)
  shares = []
  for client in data.client_ids:
    examples = data.load(client)
    logits = np.tanh(examples['x'] @ w + a) @ v + c
    shares.append(np.mean(logits.argmax(1) == examples['y']))
  return shares


def evaluation(**options):
  groups = {
    'train': client_evaluation.Group(clients('=bcde')),
    'unseen': client_evaluation.Group(clients('fg')),
  }
  return client_evaluation.ClientEvaluation(
    small_problem.model(), groups, **{'rounds_per_evaluation': 2, **options}
  )


def train(folder, rounds=5, **options):
  usual = {'clients_per_round': 2, 'seed': 0, 'rounds_per_evaluation': 4}
  return fakes.train(folder, rounds, PROCESS, clients('=bcde'), **usual, **options)


def test_clients_are_loaded_one_at_a_time(monkeypatch):
  loading = mock.MagicMock()
  monkeypatch.setattr(cohorts, 'LOADING', loading)
  monkeypatch.setattr(client_source, 'LOADING', loading)
  train(None, client_evaluation=evaluation())  # Five rounds of 2; 7 after rounds 0, 2, 4 and 5.
  assert loading.__enter__.call_count == 5 * 2 + 4 * 7


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  train(folder, client_evaluation=evaluation())
  return folder


def test_columns_are_numpys_statistics_of_each_client(run):
  rows = {int(r['round']): r for r in fakes.rows(run) if r['clients_unseen_accuracy_mean']}
  assert list(rows) == [0, 2, 4, 5]
  for number, row in rows.items():
    theta = small_problem.theta_0() / 2**number
    for infix, weights in (('', theta), ('inference_', 2 * theta)):
      values = accuracies(weights, clients('=bcde'))
      for name, expected in {
        'mean': np.mean(values),
        'std': np.std(values),
        'p10': np.percentile(values, 10),
        'p50': np.median(values),
        'p90': np.percentile(values, 90),
        'worst_tenth': min(values),
        'by_examples': np.average(values, weights=small_problem.NUM_EXAMPLES[:5]),
      }.items():
        column = f'clients_train_{infix}accuracy_{name}'
        assert float(row[column]) == pytest.approx(expected, rel=1e-6), column


def test_a_file_has_each_client(run):
  paths = sorted(glob.glob(str(run / client_evaluation.FOLDER / '*')))
  assert [os.path.basename(p) for p in paths] == [f'round_00000{i}.csv' for i in (0, 2, 4, 5)]
  with open(paths[1], newline='', encoding='utf-8') as file:
    lines = list(csv.DictReader(file))
  assert [(line['group'], line['client']) for line in lines] == [
    *(('train', c) for c in ("'=", *'bcde')),  # No formula for a spreadsheet.
    *(('unseen', c) for c in 'fg'),
  ]
  assert [int(line['examples']) for line in lines] == list(small_problem.NUM_EXAMPLES)
  expected = accuracies(small_problem.theta_0() / 4, clients())
  np.testing.assert_allclose([float(line['accuracy']) for line in lines], expected, rtol=1e-6)
  assert list(lines[0])[3:] == ['loss', 'accuracy', 'inference_loss', 'inference_accuracy']


def test_at_most_so_many_clients_the_same_each_time(monkeypatch):
  build = mock.Mock(side_effect=models.build_client_evaluation)
  monkeypatch.setattr(models, 'build_client_evaluation', build)

  def lines(seed):
    state = run_test.Process(run_test.OneModel).initialize()  # Plain weights, and one model.
    report = evaluation(most_clients=3, seed=seed, batch_size=9).evaluate(state, 0)
    return [line.split(',')[1] for line in report.table.splitlines()[1:]]

  assert {len({*lines(seed)}) for seed in range(5)} == {3 + 2}
  assert lines(0) == lines(0)
  assert len({tuple(lines(seed)) for seed in range(5)}) > 1
  assert {call.args[1] for call in build.call_args_list} == {9}


@pytest.mark.parametrize('is_cut', [False, True])
def test_personalization_is_fine_tuning_on_the_clients_own_other_examples(is_cut):
  """Those of the files, or of each the first five."""
  training_clients = clients('bdf', most=None if is_cut else 5)
  heldout = clients('bdf')
  tuned = []

  def personalize(weights, data, client, rounds):
    tuned.append((len(data['y']), client, rounds))
    return [w * (client + 1) for w in weights]

  evaluate = client_evaluation.ClientEvaluation(
    small_problem.model(),
    {
      'heldout': client_evaluation.Group(
        heldout, training_clients, max_tuning_examples=5 if is_cut else None
      )
    },
    rounds_per_evaluation=1,
    personalize=personalize,
  )
  report = evaluate.evaluate(PROCESS.initialize(), 7)
  assert sorted(tuned) == [(5, 0, 7), (5, 1, 7), (5, 2, 7)]
  inference = 2 * small_problem.theta_0()
  expected = [accuracies((i + 1) * inference, heldout)[i] for i in range(3)]
  lines = csv.DictReader(report.table.splitlines())
  in_table = [float(line['personalized_accuracy']) for line in lines]
  np.testing.assert_allclose(in_table, expected, rtol=1e-6)
  mean = report.columns['clients_heldout_personalized_accuracy_mean']
  assert mean == pytest.approx(np.mean(expected))


def test_each_client_trains_alone_once_from_the_initial_model():
  heldout = clients('bdf')
  tuned = []

  def train_alone(weights, data, client, rounds):
    tuned.append((client, rounds))
    return [w * (client + 2) for w in weights]

  model = small_problem.model()
  evaluate = client_evaluation.ClientEvaluation(
    model,
    {'heldout': client_evaluation.Group(heldout, clients('bdf', most=5))},
    rounds_per_evaluation=1,
    train_alone=train_alone,
  )
  reports = [evaluate.evaluate(PROCESS.initialize(), number) for number in (0, 7)]
  assert sorted(tuned) == [(0, 0), (1, 0), (2, 0)]
  initial = np.concatenate([np.ravel(w) for w in model.initial_weights[0]])
  expected = [accuracies((i + 2) * initial, heldout)[i] for i in range(3)]
  for report in reports:
    lines = csv.DictReader(report.table.splitlines())
    values = [float(line['local_accuracy']) for line in lines]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    mean = report.columns['clients_heldout_local_accuracy_mean']
    assert mean == pytest.approx(np.mean(expected))


def test_a_metric_of_sums_is_pooled_and_not_the_mean_of_clients():
  names = ['f1_macro', 'balanced_accuracy']
  evaluate = client_evaluation.ClientEvaluation(
    models_lib.with_metrics(small_problem.model(), names),
    {'train': client_evaluation.Group(clients('bcd'))},
    rounds_per_evaluation=1,
  )
  theta = small_problem.theta_0()
  report = evaluate.evaluate(PROCESS.initialize(), 0)
  w, a, v, c = oracle.unpack(theta)
  predicted = []
  labels = []
  for client in 'bcd':
    data = clients('bcd').load(client)
    predicted.append((np.tanh(data['x'] @ w + a) @ v + c).argmax(1))
    labels.append(data['y'])
  lines = list(csv.DictReader(report.table.splitlines()))
  for line, y, p in zip(lines, labels, predicted):
    assert float(line['balanced_accuracy']) == pytest.approx(sk.balanced_accuracy_score(y, p))
  pooled = sk.f1_score(np.concatenate(labels), np.concatenate(predicted), average='macro')
  assert report.columns['clients_train_f1_macro_by_examples'] == pytest.approx(pooled)
