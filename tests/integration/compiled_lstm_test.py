"""Models whose LSTMs are compiled operations train as those of TensorFlow's, wherever they run."""

import numpy as np
import pytest
import tensorflow as tf

from scripts import train
from tests.helpers import compiler, engines
from tff_adaptive import algorithms, engine
from tff_adaptive.client import ClientTraining, batching, whole_client
from tff_adaptive.engine.cluster import ray_worker
from tff_adaptive.kernels import library
from tff_adaptive_tasks.models import language, layers

pytestmark = compiler.NEEDED

STEPS, UNITS, WORDS = 6, 21, 12
PARALLEL = 2


def build_model(lstm):
  """Two LSTMs in a row, as Shakespeare's."""
  draw = layers.Initializer(0)
  weights = (
    draw.uniform(0.05, WORDS, 5),
    *language.lstm_weights(draw, 5, UNITS, he_normal=True),
    *language.lstm_weights(draw, UNITS, UNITS, he_normal=True),
    *(draw.glorot_uniform(UNITS, WORDS), layers.zeros(WORDS)),
  )

  def run(weights, h, layer):
    h = layer(layer(h, *weights[:3]), *weights[3:6])
    return language.dense_rows(h, *weights[6:])

  return language.build_model(weights, run, STEPS, {'accuracy': [0]}, 'published', lstm)


def cohort():
  """Five clients of 3 to 9 sequences, some of them padded."""
  clients = []
  for k in range(5):
    rng = np.random.default_rng(k)
    text = rng.integers(1, WORDS, [3 + k * 3 // 2, STEPS + 1]).astype(np.int32)
    text[0, 3 + k % 3 :] = 0
    clients.append(whole_client.client_arrays(text[:, :-1], text[:, 1:], k))
  return clients


def build_process(lstm):
  return algorithms.build_fed_avgm(
    build_model(lstm),
    client_learning_rate=0.5,
    server_learning_rate=1.0,
    training=ClientTraining(batching=batching.Batching(4, 2)),
  )


def trained(context, process):
  """The state after three rounds, in plain values."""
  state = engines.run(context, process.initialize)
  for _ in range(3):
    state = engines.run(context, process.next, state, cohort()).state
  return state


def assert_bits(found, expected):
  engines.assert_same(found, expected, rtol=0, atol=0)


def test_it_trains_as_tensorflows_operations_do():
  context = engine.GraphContext(PARALLEL)
  compiled, plain = (trained(context, build_process(lstm)) for lstm in ('compiled', 'tensorflow'))
  engines.assert_same(compiled, plain)


def test_clients_together_are_those_one_by_one():
  process = build_process('compiled')
  one_by_one = trained(engine.GraphContext(PARALLEL), process)
  together = trained(engine.GraphContext(PARALLEL, clients_per_step=3), process)
  engines.assert_same(together, one_by_one)


@pytest.mark.xdist_group('ray')
def test_every_division_of_the_clients_gives_the_same_bits(ray_nodes):
  """On processors and, in subrounds, on Ray workers, which load the operations themselves."""
  process = build_process('compiled')
  alone = trained(engine.GraphContext(1), process)
  assert_bits(trained(engine.GraphContext(PARALLEL), process), alone)
  in_subrounds = trained(engine.SubroundContext(3), process)
  on_workers = trained(engine.RayContext('auto', patience=1000.0, subrounds=3), process)
  assert_bits(on_workers, in_subrounds)


def test_only_training_has_the_operations():
  model = build_model('compiled')
  x, weights = tf.ones([2, STEPS], tf.int32), [tf.constant(w) for w in model.initial_weights[0]]
  for training in (True, False):
    graph = tf.function(lambda t=training: model.forward(weights, x, t, None))
    operations = graph.get_concrete_function().graph.as_graph_def().node
    assert any(node.op.startswith(library.PREFIX) for node in operations) == training


def test_what_does_not_train_needs_no_compiler(monkeypatch):
  monkeypatch.setattr(library, 'load', no_library)
  model = build_model('compiled')
  x, weights = tf.ones([2, STEPS], tf.int32), [tf.constant(w) for w in model.initial_weights[0]]
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


def test_a_worker_without_a_compiler_is_named(monkeypatch):
  monkeypatch.setattr(ray_worker, '_where', lambda: 'process 7 on 10.0.0.2')
  with pytest.raises(engine.WorkerError, match=r'Worker process 7 on 10\.0\.0\.2: there is no com'):
    ray_worker.call(lambda _: no_library(), None)
