"""Exported models of images and texts predict raw inputs as the run evaluated prepared ones."""

import dataclasses
import json
import runpy

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from scripts import export
from tests.helpers import task_data
from tff_adaptive_tasks import shakespeare
from tff_adaptive_tasks.models import language, layers

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


# Task -> what writes its files, its options, raw inputs, the metric that the test computes.
BAGS = {'tokens': SENTENCES, 'title': TITLES, 'tags': TAGS}
CASES = {
  'shakespeare': (write_shakespeare, {}, LINES, 'accuracy'),
  'stackoverflow_nwp': (write_stackoverflow, {'num_words': 4}, SENTENCES, 'accuracy'),
  'stackoverflow_lr': (write_stackoverflow, {'num_words': 4, 'num_tags': 3}, BAGS, 'precision'),
  'emnist_cr': (write_emnist, {'only_digits': True}, PIXELS, 'accuracy'),
  'emnist_ae': (write_emnist, {'only_digits': True}, PIXELS, 'mse'),
}


def _without_lstms(seed):
  """Shakespeare's model but for its LSTMs, which take long to save; those of words are saved."""
  draw, size = layers.Initializer(seed), shakespeare.VOCABULARY_SIZE
  weights = (draw.uniform(0.05, size, 8), draw.glorot_uniform(8, size), layers.zeros(size))
  metrics = {'accuracy': [language.PADDING]}
  return language.build_model(
    weights, lambda w, h, _: language.dense_rows(h, *w), shakespeare.STEPS, metrics, 'published'
  )


class _Run:
  """What `export.export` takes of a run; its weights were drawn, but for the likeliest answer."""

  folder, round_number, settings, config = 'runs/none', 7, {'seed': 0}, {'run_id': 'none'}

  def __init__(self, task):
    self._task = task
    model = task.build_model(0)
    self._weights = [w.copy() for w in model.initial_weights[0]]
    last, y = self._weights[-1], task.validation['y']
    last += np.random.default_rng(1).normal(size=last.shape)
    if y.dtype.kind == 'i':
      last[np.bincount(y[y > 0]).argmax()] += 9

  def task(self):
    return self._task

  def best(self, metric):
    return 'theta'

  def chosen(self, which):
    return tuple(w.astype(np.float32) for w in self._weights)


def accuracy(prepare, raw, predicted):
  """Of the tokens that are none of padding."""
  targets = prepare.targets(raw)
  return np.mean((predicted.argmax(-1) == targets)[targets != 0])


def precision(prepare, raw, predicted):
  return np.mean(prepare.targets(raw)[predicted > 0])


@pytest.mark.parametrize('name', CASES)
def test_raw_inputs_have_the_runs_metric(name, tmp_path):
  write, options, raw, metric = CASES[name]
  write(tmp_path)
  task = tasks.load(name, str(tmp_path), **options)
  if name == 'shakespeare':
    task = dataclasses.replace(task, build_model=_without_lstms)
  output = tmp_path / 'model'
  record = export.export(_Run(task), 'keras', str(output))
  prepare = runpy.run_path(str(output / 'preparation.py'))['Preparation'].load(
    str(output / 'preparation.json')
  )
  x = prepare(raw)
  np.testing.assert_array_equal(x, task.validation['x'])
  assert x.dtype == task.validation['x'].dtype
  predicted = tf.keras.models.load_model(output / 'model').predict(x, verbose=0)
  if name == 'emnist_cr':
    found = np.mean(prepare.labels(predicted) == [str(3 + i) for i in range(4)])
  elif name == 'emnist_ae':
    found = np.mean((predicted - (1 - PIXELS).reshape(4, 784)) ** 2)
  else:
    np.testing.assert_array_equal(prepare.targets(raw), task.validation['y'])
    found = (precision if name == 'stackoverflow_lr' else accuracy)(prepare, raw, predicted)
  assert found == pytest.approx(record['validation'][metric], abs=1e-6)
  assert 0 < found < 1


@pytest.mark.parametrize('activation', ['sigmoid', None])
def test_a_model_with_one_output_for_two_classes_has_the_runs_accuracy(activation, tmp_path):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(80, 3)).astype(np.float32)
  y = np.where(x[:, 0] + rng.normal(size=80) > 0.3, 'poor', 'good')

  def build():
    return tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1, activation)])

  task = tasks.from_arrays(x, y, np.repeat(np.arange(8), 10), model=build)
  output = tmp_path / 'model'
  record = export.export(_Run(task), 'keras', str(output))
  prepare = runpy.run_path(str(output / 'preparation.py'))['Preparation'].load(
    str(output / 'preparation.json')
  )
  predicted = tf.keras.models.load_model(output / 'model.keras').predict(task.validation['x'])
  labels = prepare.labels(predicted)
  assert set(labels) == {'good', 'poor'}
  found = np.mean((labels == 'poor') == task.validation['y'])
  assert found == pytest.approx(record['validation']['accuracy'], abs=1e-6)
