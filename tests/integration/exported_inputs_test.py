"""What an export takes along makes of raw inputs what the run trained and evaluated on."""

import inspect
import json
import runpy
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from scripts import export
from tests.helpers import task_data

LINES = ['to be', 'e', 'Où? ' + 'thee ' * 30, '']
SENTENCES = ['the a zebra', 'the ' * 30 + 'the', '', 'caf\u00e9 the']
TITLES, TAGS = ['a title', 'the', 'x', ''], ['r|python', 'c++', 'go|r', '']
PIXELS = np.random.default_rng(0).choice([0.0, 0.25, 0.7, 1.0], (4, 28, 28)).astype(np.float32)


def write_shakespeare(folder):
  split = {'a': [task_data.example(snippets=line.encode()) for line in LINES]}
  task_data.write(folder / 'shakespeare.sqlite', {'train': split, 'test': split})


def write_stackoverflow(folder):
  rows = zip(SENTENCES, TITLES, TAGS)
  split = {'a': [task_data.example(**_row(*row)) for row in rows]}
  task_data.write(folder / 'stackoverflow.sqlite', {'train': split, 'test': split})
  (folder / 'datasets').mkdir()
  words = 'the 9\na 5\ncaf\u00e9 3\n'.encode() + b'\xff 2\n'
  (folder / 'datasets' / 'stackoverflow.word_count').write_bytes(words)
  counts = {'r': 3, 'python': 2, 'c++': 1}
  (folder / 'datasets' / 'stackoverflow.tag_count').write_text(json.dumps(counts))


def _row(tokens, title, tags):
  return {'tokens': tokens.encode(), 'title': title.encode(), 'tags': tags.encode()}


def write_emnist(folder):
  split = {
    'w': [task_data.example(pixels=p.ravel().tolist(), label=3 + i) for i, p in enumerate(PIXELS)]
  }
  splits = ('digits_only_train', 'digits_only_test')
  task_data.write(folder / 'emnist_all.sqlite', dict.fromkeys(splits, split))


# Task -> what writes its files, its options, raw inputs.
BAGS = {'tokens': SENTENCES, 'title': TITLES, 'tags': TAGS}
CASES = {
  'shakespeare': (write_shakespeare, {}, LINES),
  'stackoverflow_nwp': (write_stackoverflow, {'num_words': 4}, SENTENCES),
  'stackoverflow_lr': (write_stackoverflow, {'num_words': 4, 'num_tags': 3}, BAGS),
  'emnist_cr': (write_emnist, {'only_digits': True}, PIXELS),
  'emnist_ae': (write_emnist, {'only_digits': True}, PIXELS),
}


class _Run:
  """What `export.export` takes of a run; its weights were drawn."""

  folder, round_number, settings, config = 'runs/none', 7, {'seed': 0}, {'run_id': 'none'}

  def __init__(self, task):
    self._task = task
    model = task.build_model(0)
    self._weights = [w.copy() for w in model.initial_weights[0]]
    self._weights[-1] += np.random.default_rng(1).normal(size=self._weights[-1].shape)

  def task(self):
    return self._task

  def best(self, metric):
    return 'theta'

  def chosen(self, which):
    return tuple(w.astype(np.float32) for w in self._weights)


def _load(folder):
  """The preparation, by the file beside an exported model alone."""
  made = runpy.run_path(str(folder / 'preparation.py'))['Preparation']
  return made.load(str(folder / 'preparation.json'))


@pytest.mark.parametrize('name', CASES)
def test_raw_inputs_become_those_that_were_evaluated(name, tmp_path):
  write, options, raw = CASES[name]
  write(tmp_path)
  task = tasks.load(name, str(tmp_path), **options)
  shutil.copy(inspect.getfile(type(task.preparation)), tmp_path / 'preparation.py')
  task.preparation.save(str(tmp_path / 'preparation.json'))
  prepare = _load(tmp_path)
  x, y = prepare(raw), task.validation['y']
  np.testing.assert_array_equal(x, task.validation['x'])
  assert x.dtype == task.validation['x'].dtype
  if name == 'emnist_cr':
    np.testing.assert_array_equal(prepare.labels(y), [str(3 + i) for i in range(4)])
  elif name != 'emnist_ae':
    np.testing.assert_array_equal(prepare.targets(raw), y)


def test_an_exported_model_has_the_runs_metric_on_raw_inputs(tmp_path):
  write_stackoverflow(tmp_path)
  task = tasks.load('stackoverflow_lr', str(tmp_path), num_words=4, num_tags=3)
  record = export.export(_Run(task), 'keras', str(tmp_path / 'model'))
  prepare = _load(tmp_path / 'model')
  model = tf.keras.models.load_model(tmp_path / 'model' / 'model')
  found = np.mean(prepare.targets(BAGS)[model.predict(prepare(BAGS), verbose=0) > 0])
  assert found == pytest.approx(record['validation']['precision'], abs=1e-6)
  assert 0 < found < 1


def test_a_model_with_one_output_for_two_classes_has_the_runs_accuracy(tmp_path):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(80, 3)).astype(np.float32)
  y = np.where(x[:, 0] + rng.normal(size=80) > 0.3, 'poor', 'good')

  def build():
    return tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1)])

  task = tasks.from_arrays(x, y, np.repeat(np.arange(8), 10), model=build)
  output = tmp_path / 'model'
  record = export.export(_Run(task), 'keras', str(output))
  prepare = _load(output)
  predicted = tf.keras.models.load_model(output / 'model.keras').predict(task.validation['x'])
  labels = prepare.labels(predicted)
  assert set(labels) == {'good', 'poor'}
  found = np.mean((labels == 'poor') == task.validation['y'])
  assert found == pytest.approx(record['validation']['accuracy'], abs=1e-6)
