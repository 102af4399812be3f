"""A run's weights and metrics, read back from its folder."""

import collections
import dataclasses
import hashlib
import os
import shutil
import types
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive
from tests.helpers import fakes, run_folders, small_problem
from tff_adaptive import models, runs, training
from tff_adaptive.runs import errors, run as run_lib
from tff_adaptive.training import initial_weights

X, Y = (np.concatenate(parts) for parts in zip(*small_problem.clients()))
DATA = collections.OrderedDict(x=X, y=Y)


class State(NamedTuple):
  global_model_weights: tff.learning.models.ModelWeights
  inference_weights: tff.learning.models.ModelWeights


class OneModel(NamedTuple):
  global_model_weights: list


class Process:
  """Halves the weights each round; those to serve, if any, are twice them."""

  def __init__(self, kind):
    self._kind = kind

  def initialize(self):
    weights = small_problem.model().initial_weights[0]
    if self._kind is OneModel:
      return OneModel(weights)
    kind = tff.learning.models.ModelWeights
    constants = [np.full_like(w, 7) for w in weights]
    return State(kind(weights, constants), kind([2 * w for w in weights], constants))

  def next(self, state, cohort):
    halved = tf.nest.map_structure(lambda w: w / 2, state)
    return collections.namedtuple('Output', 'state metrics')(halved, {})


def train(kind, folder):
  """A run in a folder, and its result."""
  evaluate = models.build_evaluation(small_problem.model())
  options = dict(evaluate=lambda weights: evaluate(weights, DATA), rounds_per_evaluation=2)
  return fakes.train(folder, 3, Process(kind), **options)


@pytest.fixture(scope='module')
def stateful(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'two'
  return str(folder), train(State, folder)


@pytest.fixture(scope='module')
def stateless(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'one'
  return str(folder), train(OneModel, folder)


def task(metric='accuracy'):
  return types.SimpleNamespace(
    build_model=lambda seed: small_problem.model(), validation=DATA, metric=metric
  )


def assert_same(actual, wanted):
  assert len(actual) == len(wanted)
  for a, b in zip(actual, wanted):
    np.testing.assert_array_equal(a, b)


def test_weights_are_those_that_the_run_ended_with(stateful, stateless):
  folder, result = stateful
  run = tff_adaptive.load_run(folder)
  assert run.round_number == 3
  assert_same(run.weights, result.state.global_model_weights.trainable)
  assert_same(run.inference_weights, result.state.inference_weights.trainable)
  assert not np.array_equal(run.weights[0], run.inference_weights[0])
  folder, result = stateless
  run = tff_adaptive.load_run(folder)
  assert_same(run.weights, result.state.global_model_weights)
  assert run.inference_weights is None


def test_metrics_are_a_table_by_round_and_evaluation_gives_the_runs_own_figures(stateful):
  run = tff_adaptive.load_run(stateful[0], load_task=lambda config: task())
  metrics = run.metrics
  last = run.rows[-1]
  assert metrics.index.tolist() == metrics['round'].tolist() == [0, 1, 2, 3]
  assert metrics['validation_loss'].isna().tolist() == [False, True, False, False]
  assert metrics.loc[3, 'validation_loss'] == stateful[1].summary['last']['validation_loss']
  assert run.evaluate(run.weights)['loss'] == last['validation_loss']
  assert run.evaluate(run.inference_weights)['loss'] == last['inference_loss']
  assert run.evaluate() == run.evaluate(run.chosen(run.best('accuracy')))
  cut = dataclasses.replace(run, rows=run.rows[:2])  # Round 1 was not evaluated.
  assert 'validation_loss' not in cut.rows[-1]
  assert_same(cut.chosen('theta_bar'), run.inference_weights)


def test_a_task_needs_a_way_to_load_it_and_a_run_a_folder(stateless, tmp_path):
  with pytest.raises(ValueError, match=r'take tasks\.load_run'):
    tff_adaptive.load_run(stateless[0]).task()
  with pytest.raises(ValueError, match="has no weights 'theta_bar'"):
    tff_adaptive.load_run(stateless[0]).chosen('theta_bar')
  with pytest.raises(ValueError, match=r'of a run: it has no config\.json'):
    tff_adaptive.load_run(str(tmp_path))
  with pytest.raises(ValueError, match='of a run: there is no such folder'):
    tff_adaptive.load_run(str(tmp_path / 'run'))


@pytest.mark.parametrize(
  'last, metric, expected',
  [
    (dict(validation_accuracy=0.5, inference_accuracy=0.6), 'accuracy', 'theta_bar'),
    (dict(validation_accuracy=0.7, inference_accuracy=0.6), 'accuracy', 'theta'),
    (dict(validation_loss=0.5, inference_loss=0.6), 'loss', 'theta'),
    (dict(validation_loss=0.7, inference_loss=0.6), 'loss', 'theta_bar'),
    (dict(validation_accuracy=0.6, inference_accuracy=0.6), 'accuracy', 'theta'),
    (dict(validation_loss=np.nan, inference_loss=0.6), 'loss', 'theta_bar'),
    (dict(validation_accuracy=np.nan, inference_accuracy=np.nan), 'accuracy', 'theta'),
    ({}, 'accuracy', 'theta_bar'),
    (dict(validation_accuracy=0.05), 'accuracy', 'theta'),
  ],
)
def test_the_better_weights_are_those_of_the_last_evaluation(last, metric, expected):
  rows = [{'validation_accuracy': 0.1, 'inference_accuracy': 0.2}, last, {'round': 3.0}]
  assert runs.Run('run', {}, rows).best(metric) == expected
  with pytest.raises(ValueError, match='validation_recall was never evaluated'):
    runs.Run('run', {}, rows).best('recall')


def copied(source, tmp_path):
  folder = tmp_path / 'copy'
  shutil.copytree(source, folder)
  return str(folder), folder / 'checkpoints' / 'state.sqlite'


def test_reading_changes_nothing_and_a_checkpoint_gone_cut_or_of_another_model_is_refused(
  stateful, tmp_path
):
  folder, path = copied(stateful[0], tmp_path)
  before = path.read_bytes()
  assert tff_adaptive.load_run(folder).weights
  assert path.read_bytes() == before
  assert os.listdir(path.parent) == ['state.sqlite']
  run_folders.write_config(folder, {'rounds': 3}, num_parameters=8)
  for spoil, match in (
    (lambda: None, 'does not have the 8 parameters'),
    (lambda: os.truncate(path, 5000), r'cannot be read|damaged'),
    (lambda: os.truncate(path, 0), 'holds no checkpoint yet'),
    (path.unlink, 'there is no checkpoint'),
  ):
    spoil()
    with pytest.raises(runs.StateError, match=match):
      _ = tff_adaptive.load_run(folder).weights


def test_links_are_followed_and_a_run_is_read_once(tmp_path):
  run_folders.make(tmp_path / 'elsewhere', [0.1])
  folder = tmp_path / 'runs'
  run_folders.make(folder / 'a', [0.1])
  (folder / 'linked').symlink_to(tmp_path / 'elsewhere')
  (folder / 'again').symlink_to(tmp_path / 'elsewhere')
  (folder / 'back').symlink_to(folder)
  runs = run_lib.find_runs([str(folder), str(folder / 'a'), str(tmp_path / 'elsewhere')])
  assert [run.folder for run in runs] == [str(folder / name) for name in ('a', 'again')]


@pytest.mark.parametrize('metric, better', [('accuracy', 'theta'), ('loss', 'theta_bar')])
def test_a_start_is_the_better_by_what_reports_compare_by(stateful, monkeypatch, metric, better):
  run = tff_adaptive.load_run(stateful[0])
  model = small_problem.model()
  last = {'validation_accuracy': 0.9, 'inference_accuracy': 0.1}
  last |= {'validation_loss': 2.0, 'inference_loss': 1.0, 'round': 3}
  changed = dataclasses.replace(run, rows=[last], config={**run.config, 'metric': metric})
  monkeypatch.setattr(run_lib, 'load_run', lambda folder: changed)
  start = training.initial_weights_from(stateful[0], model)
  assert_same(start, run.chosen(better))
  parts = [f'{w.dtype.str} {w.shape}'.encode() + w.tobytes() for w in start]
  assert initial_weights.sha256(stateful[0]) == hashlib.sha256(b''.join(parts)).hexdigest()
  assert_same(models.with_initial_weights(model, start).initial_weights[0], start)


def test_runs_that_cannot_be_read_are_left_out_and_named(tmp_path, capsys):
  for name in 'abcd':
    run_folders.make(tmp_path / name, [0.1, 0.2])
  (tmp_path / 'b' / 'config.json').write_text('{')
  (tmp_path / 'c' / 'metrics.csv').write_text('nonsense\n')
  runs = run_lib.find_runs([str(tmp_path)])
  assert [os.path.basename(run.folder) for run in runs] == ['a', 'd']
  lines = capsys.readouterr().err.splitlines()
  assert [line.startswith('Left out: ') for line in lines] == [True, True]
  assert f'{tmp_path}/b/config.json' in lines[0]
  assert f'{tmp_path}/c/metrics.csv' in lines[1]
  with pytest.raises(errors.RunFileError, match=r'b/config\.json cannot be read'):
    run_lib.find_runs([str(tmp_path / 'b')])
  assert not capsys.readouterr().err


def test_the_evaluation_of_weights_is_the_last_one_up_to_their_checkpoint():
  rows = [
    {'round': 0, 'validation_accuracy': 0.1, 'validation_loss': 2.0},
    {'round': 2, 'validation_accuracy': 0.4, 'validation_loss': 1.0, 'inference_accuracy': 0.5},
    {'round': 3, 'train_loss': 1.0},
    {'round': 4, 'validation_accuracy': 0.9, 'validation_loss': 0.1, 'inference_accuracy': 0.8},
  ]
  run = run_lib.Run('x', {'settings': {}}, rows)
  vars(run)['_state'] = (3, {})  # The checkpoint is of round 3.
  assert run.evaluation('theta') == (2, {'accuracy': 0.4, 'loss': 1.0})
  assert run.evaluation('theta_bar') == (2, {'accuracy': 0.5})
  vars(run)['_state'] = (1, {})
  assert run.evaluation('theta')[0] == 0
  with pytest.raises(ValueError, match='theta_bar was not evaluated up to its last checkpoint'):
    run.evaluation('theta_bar')
