"""Models whose LSTMs are compiled operations train as those of TensorFlow's, wherever they run."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from scripts import train
from tests.helpers import compiler, engines
from tff_adaptive import algorithms, engine
from tff_adaptive.client import ClientTraining, batching, client_arrays, model_adapters
from tff_adaptive.kernels import library
from tff_adaptive_tasks.models import language, layers

pytestmark = compiler.NEEDED

STEPS = 6
UNITS = 21
WORDS = 12


def build_model(lstm, depth=2):
  """LSTMs in a row: two, as Shakespeare's, or one."""
  draw = layers.Initializer(0)
  sizes = [5, *[UNITS] * depth]
  lstms = [language.lstm_weights(draw, *pair, he_normal=True) for pair in itertools.pairwise(sizes)]
  last = draw.glorot_uniform(UNITS, WORDS), layers.zeros(WORDS)
  weights = draw.uniform(0.05, WORDS, 5), *itertools.chain(*lstms), *last

  def run(weights, h, layer):
    for i in range(depth):
      h = layer(h, *weights[3 * i : 3 * i + 3])
    return language.dense_rows(h, *weights[3 * depth :])

  return language.build_model(weights, run, STEPS, {'accuracy': [0]}, 'published', lstm)


def cohort():
  """Five clients of 3 to 9 sequences, some of them padded."""
  clients = []
  for k in range(5):
    rng = np.random.default_rng(k)
    text = rng.integers(1, WORDS, [3 + k * 3 // 2, STEPS + 1]).astype(np.int32)
    text[0, 3 + k % 3 :] = 0
    clients.append(client_arrays(text[:, :-1], text[:, 1:], k))
  return clients


def gradients(lstm, in_group):
  """Of two clients' batches, the second with padding, together or one by one."""
  local = model_adapters.wrap(build_model(lstm))
  text = np.random.default_rng(0).integers(1, WORDS, [2, 3, STEPS + 1]).astype(np.int32)
  text[1, 2, 3:] = 0
  x = tf.constant(text[..., :-1])
  y = tf.constant(text[..., 1:])
  weights = [np.stack([w, 1.3 * w]).astype(np.float32) for w in local.model.initial_weights[0]]
  shares = tf.constant([[1 / 3] * 3, [0.5, 0.5, 0]])
  sizes = tf.constant([3.0, 2.0])
  if in_group:
    step = model_adapters.LocalStep({'x': x, 'y': y}, (shares, sizes))
    together = local.for_groups()
    return together.gradients(tuple(map(tf.constant, weights)), (), step, together.start(2))
  gradients = []
  for i in range(2):
    step = model_adapters.LocalStep({'x': x[i], 'y': y[i]}, (shares[i], sizes[i]))
    theta = tuple(tf.constant(w[i]) for w in weights)
    gradients.append(local.gradients(theta, (), step, local.start()))
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *gradients)


@pytest.mark.parametrize('in_group', [False, True])
def test_gradients_and_metrics_are_those_of_tensorflows_operations(in_group):
  engines.assert_same(gradients('compiled', in_group), gradients('tensorflow', False))


@pytest.mark.xdist_group('ray')
@pytest.mark.exhaustive
def test_workers_load_the_operations_and_give_the_same_bits(ray_workers, graph):
  process = algorithms.build_fed_avg(
    build_model('compiled', depth=1),
    client_learning_rate=0.5,
    training=ClientTraining(batching=batching.Batching(4, 2)),
  )
  state = engines.run(graph, process.initialize)
  here = engines.run(engine.SubroundContext(4, server=graph), process.next, state, cohort())
  there = engines.run(ray_workers, process.next, state, cohort())
  engines.assert_same(there, here, rtol=0, atol=0)


def test_only_training_has_the_operations_and_needs_a_compiler(monkeypatch):
  model = build_model('compiled')
  x = tf.ones([2, STEPS], tf.int32)
  weights = [tf.constant(w) for w in model.initial_weights[0]]
  for training in (True, False):
    graph = tf.function(lambda t=training: model.forward(weights, x, t, None), autograph=False)
    operations = graph.get_concrete_function().graph.as_graph_def().node
    assert any(node.op.startswith(library.PREFIX) for node in operations) == training
  monkeypatch.setattr(library, 'load', no_library)
  assert model.forward(weights, x, False, None).shape == (2, STEPS, WORDS)
  with pytest.raises(library.KernelError):
    model.forward(weights, x, True, None)


def no_library():
  raise library.KernelError('there is no compiler')


def test_a_run_without_a_compiler_ends_before_anything_is_loaded(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(library, 'load', no_library)
  flags = ['--task=shakespeare', f'--data_dir={tmp_path}', '--task_option=lstm=compiled']
  assert train.main(['train.py', *flags, f'--output_dir={tmp_path}/run']) == 2
  assert capsys.readouterr().err == 'train.py: there is no compiler\n'
  assert not (tmp_path / 'run').exists()
