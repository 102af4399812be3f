"""research/experiments/beside_fair_flearn.py: what the trainers get, and how their models count."""

import sys

import numpy as np
import pytest

from research.experiments import beside_fair_flearn, fairness
from research.peers import fair_rounds

# A trainer as those of the program: one step with the sum of the clients' gradients.
_TRAINER = """
class Server:
  def __init__(self, params, learner, dataset):
    self.params, self.model, self.dataset = params, learner(1, 2), dataset

  def train(self):
    names, groups, train, test = self.dataset
    assert sorted(train) == sorted(test) == names == ['Doctorate', 'others']
    before = self.model.get_params()
    self.latest_model = self.model.get_params()
    for name in names:
      gradients, loss, _ = self.model.solve_sgd((train[name]['x'], train[name]['y']))
      for value, gradient in zip(self.latest_model, gradients):
        value -= self.params['learning_rate'] * gradient
    for value, same in zip(self.model.get_params(), before):
      assert (value == same).all()
"""


def _parts() -> dict[str, tuple[np.ndarray, ...]]:
  generator = np.random.default_rng(0)
  parts = {}
  for part, size in (('train', 12), ('test', 6)):
    clients = np.where(np.arange(size) % 3 == 0, fairness.DOCTORATE, fairness.OTHERS)
    x = generator.standard_normal((size, 4)).astype(np.float32)
    parts[part] = x, generator.integers(2, size=size), clients
  return parts


def test_the_model_of_the_trainers_has_the_gradient_of_its_loss():
  parts = _parts()
  x, y, _ = parts['train']
  weights = [np.random.default_rng(1).standard_normal((4, 2)), np.array([0.3, -0.2])]
  rows = [0, 3, 5]

  def loss() -> float:
    return fair_rounds.LogisticRegression(x, y, weights).solve_sgd((rows, rows))[1]

  gradients = fair_rounds.LogisticRegression(x, y, weights).solve_sgd((rows, rows))[0]
  for value, gradient in zip(weights, gradients):
    for place in np.ndindex(value.shape):
      value[place] += 1e-6
      above = loss()
      value[place] -= 2e-6
      below = loss()
      value[place] += 1e-6
      assert (above - below) / 2e-6 == pytest.approx(gradient[place], abs=1e-8)


def test_a_trainer_gets_the_clients_and_its_weights_are_kept(tmp_path, monkeypatch):
  folder = tmp_path / 'source' / 'flearn' / 'trainers'
  folder.mkdir(parents=True)
  (folder / 'qffedsgd.py').write_text(_TRAINER)
  monkeypatch.setattr(sys, 'path', [*sys.path])
  for name in ('tensorflow', 'flearn', 'flearn.trainers', 'flearn.trainers.qffedsgd'):
    monkeypatch.delitem(sys.modules, name, raising=False)
  monkeypatch.setitem(sys.modules, 'tensorflow', None)  # So that the stand-in goes afterwards.
  parts = _parts()
  x, y, clients = parts['train']
  given, result = tmp_path / 'problem.npz', tmp_path / 'weights.npz'
  kernel, bias = np.zeros((4, 2), np.float32), np.zeros(2, np.float32)
  examples = {'x_train': x, 'y_train': y, 'client_train': clients}
  examples |= dict(zip(('x_test', 'y_test', 'client_test'), parts['test']))
  settings = {'trainer': 'qffedsgd', 'rounds': 3, 'q': 0.0, 'lambda_rate': 0.0}
  np.savez(given, kernel=kernel, bias=bias, learning_rate=0.5, **examples, **settings)
  fair_rounds.main([str(tmp_path / 'source'), str(given), str(result)])
  # At zero weights the gradient of the two logits is (1/2 - label) for each client's mean.
  expected = np.zeros((4, 2))
  for name in np.unique(clients):
    mine = clients == name
    off = 0.5 - np.eye(2)[y[mine]]
    expected -= 0.5 * x[mine].T @ off / mine.sum()
  with np.load(result) as weights:
    np.testing.assert_allclose(weights['kernel'], expected, rtol=1e-6, atol=1e-7)


def test_accuracies_are_by_all_test_examples_and_by_client():
  x = np.array([[1.0, 0], [0, 1], [1, 0], [1, 0]], np.float32)
  clients = np.array([fairness.DOCTORATE, 'others', 'others', 'others'])
  parts = {'test': (x, np.array([0, 1, 1, 1]), clients)}
  row = beside_fair_flearn.accuracies((np.eye(2), np.zeros(2)), parts)
  assert row['pooled'] == 0.5
  assert row['worst_tenth'] == pytest.approx(1 / 3)
  assert row['mean'] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--methods=sgd'], '--methods'),
    (['--seeds=one'], '--seeds'),
    ([], 'adult.npz'),
    (['--data_dir={folder}'], 'setup_peers.sh fair_flearn'),
  ],
)
def test_what_it_lacks_is_said_before_anything_runs(tmp_path, monkeypatch, capsys, flags, words):
  (tmp_path / 'adult.npz').touch()
  monkeypatch.setattr(beside_fair_flearn, '_PEER', tmp_path)
  flags = [flag.format(folder=tmp_path) for flag in flags]
  assert beside_fair_flearn.main(['', f'--results={tmp_path}/rows', *flags]) == 2
  assert words in capsys.readouterr().err
