"""An optimizer in a file describes itself: it is listed, stepped with, known to have momentum."""

import pathlib
import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from scripts.cli import resolve
from tff_adaptive import algorithms, registry
from tff_adaptive.registry import optimizers as optimizer_entries

PAGE = pathlib.Path(__file__).parents[3] / 'docs' / 'guide' / 'own_optimizers.md'
# The guide's example: SGD along a moving average of the gradients.
FILE = re.findall(r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL)[0]


@pytest.fixture
def path(tmp_path):
  file = tmp_path / 'heavy.py'
  file.write_text(FILE)
  return file


def test_a_file_in_the_folder_of_optimizers_is_listed_by_itself(path, monkeypatch):
  package = types.ModuleType('more_optimizers')
  package.__path__ = [str(path.parent)]
  monkeypatch.setitem(sys.modules, 'more_optimizers', package)
  monkeypatch.delitem(sys.modules, 'more_optimizers.heavy', raising=False)
  for role, rate in (('server', 0.25), ('clients', 0.125)):
    (entry,) = optimizer_entries.listed(role, package)
    assert (entry.name, entry.title, entry.rate) == ('heavy_ball', 'heavy_ball', rate)
    assert entry.has_momentum
    assert entry.values({'beta1': 0}) == {'beta1': 0.0}
    assert entry.values({}) == {'beta1': 0.5}


def test_an_optimizer_in_a_users_file_follows_its_formula(path):
  entry = registry.server_optimizer(f'{path}:HeavyBall')
  assert (entry.name, entry.rate) == ('heavy_ball', 0.25)
  assert entry.description == 'x <- x - eta m, m <- beta1 m + (1 - beta1) g'
  optimizer = algorithms.build_server_optimizer(f'{path}:HeavyBall', 0.1, {'beta1': 0.25})
  x = tf.constant([1.0, 2.0], tf.float64)
  state = optimizer.initialize(tf.TensorSpec([2], tf.float64))
  assert list(state) == ['learning_rate', 'beta1', 'step', 'm']
  gradients = [np.array([1.0, -2.0]), np.array([3.0, 0.0])]
  for g in gradients:
    state, x = optimizer.next(state, x, tf.constant(g))
  m_1 = 0.75 * gradients[0]
  m_2 = 0.25 * m_1 + 0.75 * gradients[1]
  np.testing.assert_allclose(x, [1.0, 2.0] - 0.1 * (m_1 + m_2), rtol=1e-12)
  # As a client's, it has the clients' rate.
  assert registry.client_optimizer(f'{path}:HeavyBall').rate == 0.125
  with pytest.raises(ValueError, match='beta1 must be'):
    algorithms.build_server_optimizer(f'{path}:HeavyBall', 0.1, {'beta1': float('nan')})


def test_ada_best_has_the_default_of_momentum_with_a_users_optimizer_that_has_it(path):
  flags = {'algorithm': 'ada_best', 'server_optimizer': f'{path}:HeavyBall'}
  settings = resolve.resolve(flags)
  assert settings.correction['beta'] == 0.2
  assert settings.rates.server_learning_rate == 0.25
  assert resolve.resolve(algorithm='ada_best').correction['beta'] == 0.96


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('frozen=True', 'frozen=False', 'is no frozen dataclass: give a frozen dataclass that'),
    ("name = 'heavy_ball'", "name = 'a/b'", "has the name 'a/b'"),
    (
      "('server', 'clients')",
      "('clients',)",
      "no optimizer of the server, but of clients: add 'server'",
    ),
  ],
)
def test_a_class_that_does_not_serve_is_refused(path, old, new, words):
  assert old in FILE
  path.write_text(FILE.replace(old, new))
  with pytest.raises(ValueError, match=words):
    registry.server_optimizer(f'{path}:HeavyBall')
