"""Synthetic(alpha, beta): what is drawn has the moments of its definition."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks

MANY = {'num_clients': 400}


def inputs(task):
  return [task.train.load(c)['x'] for c in task.train.client_ids]


def test_shapes_and_sizes():
  task = tasks.load('synthetic', seed=3)
  assert len(task.train) == len(task.test_clients) == 30
  for c in task.train.client_ids:
    n = task.train.num_examples(c)
    held = task.test_clients.num_examples(c)
    assert n == int(0.9 * (n + held))
    assert n + held >= 50
  client = task.train.load('00000')
  assert client['x'].shape[1:] == (60,)
  assert client['y'].max() < 10
  assert [w.shape for w in task.build_model(0).initial_weights[0]] == [(60, 10), (10,)]


def test_the_seed_draws_the_examples():
  client = tasks.load('synthetic', seed=3).train.load('00000')
  again = tasks.load('synthetic', seed=3).train.load('00000')
  other = tasks.load('synthetic', seed=4).train.load('00000')
  np.testing.assert_array_equal(client['x'], again['x'])
  assert client['x'].shape != other['x'].shape or (client['x'] != other['x']).any()


def test_published_runs_are_repeated():
  counts = [736, 500, 77202, 632, 93, 535, 1599, 1193, 853, 619]
  np.testing.assert_array_equal(np.bincount(tasks.load('synthetic').train.load_all()['y']), counts)


def test_sizes_are_50_and_a_log_normal_number():
  task = tasks.load('synthetic', **MANY)
  more = []
  for client in task.train.client_ids:
    number = task.train.num_examples(client) + task.test_clients.num_examples(client)
    more.append(number - 50)
  assert abs(np.median(more) - np.exp(4)) < 4 * np.exp(4) * 2 * 1.25 / 20  # Four deviations.
  assert abs(np.percentile(np.log1p(more), 84) - 6) < 0.8


@pytest.mark.parametrize('beta', [0, 0.5, 2])
def test_inputs_have_the_variances_of_the_definition(beta):
  """Within a client j^-1.2; of the mean of all 60 means beta^2 + 1 / 60 between clients."""
  drawn = inputs(tasks.load('synthetic', beta=beta, **MANY))
  within = np.mean([x.var(0, ddof=1) for x in drawn if len(x) > 40], 0)
  np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.1)
  between = np.var([x.mean() for x in drawn], ddof=1)
  rest = np.mean([np.sum(np.arange(1, 61) ** -1.2) / 3600 / len(x) for x in drawn])
  expected = beta**2 + 1 / 60 + rest
  assert abs(between / expected - 1) < 4 * np.sqrt(2 / 400)


def test_labels_are_those_of_a_linear_model_of_each_client():
  from sklearn import linear_model

  for options, least in (({'iid': True}, 0.9), ({'alpha': 0, 'beta': 0}, 0.9)):
    task = tasks.load('synthetic', seed=1, **options)
    largest = max(task.train.client_ids, key=task.train.num_examples)
    client = task.train.load(largest)
    fitted = linear_model.LogisticRegression(max_iter=300, C=100).fit(client['x'], client['y'])
    assert fitted.score(client['x'], client['y']) > least
    others = np.mean([fitted.score(*d.values()) for d in map(task.train.load, ['00001', '00002'])])
    # One model is everybody's if it is IID, and only one's own if not.
    assert (others > 0.8) == ('iid' in options)


def test_iid_clients_have_inputs_of_mean_0():
  x = inputs(tasks.load('synthetic', iid=True, alpha=5, beta=5))
  deviation = np.sqrt(np.arange(1, 61) ** -1.2 / sum(map(len, x)))
  assert (np.abs(np.concatenate(x).mean(0)) < 5 * deviation).all()
