"""What an export takes along makes of raw inputs what the run trained and evaluated on."""

import inspect
import json
import runpy
import shutil

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import task_data

LINES = ['to be', 'e', 'Où? ' + 'thee ' * 30, '']
SENTENCES = ['the a zebra', 'the ' * 30 + 'the', '', 'caf\u00e9 the']
TAGS = ['r|python', 'c++', 'go|r', '']
BAGS = {'tokens': SENTENCES, 'title': ['a title', 'the', 'x', ''], 'tags': TAGS}
PIXELS = np.random.default_rng(0).choice([0.0, 0.25, 0.7, 1.0], (4, 28, 28)).astype(np.float32)


def write_texts(path, columns):
  examples = []
  for row in zip(*columns.values()):
    encoded = map(str.encode, row)
    examples.append(task_data.example(**dict(zip(columns, encoded))))
  split = {'a': examples}
  task_data.write(path, {'train': split, 'test': split})


def write_shakespeare(folder):
  write_texts(folder / 'shakespeare.sqlite', {'snippets': LINES})


def write_stackoverflow(folder):
  write_texts(folder / 'stackoverflow.sqlite', BAGS)
  (folder / 'datasets').mkdir()
  words = 'the 9\na 5\ncaf\u00e9 3\n'.encode() + b'\xff 2\n'
  (folder / 'datasets' / 'stackoverflow.word_count').write_bytes(words)
  counts = {'r': 3, 'python': 2, 'c++': 1}
  (folder / 'datasets' / 'stackoverflow.tag_count').write_text(json.dumps(counts))


def write_emnist(folder):
  split = {
    'w': [task_data.example(pixels=p.ravel().tolist(), label=3 + i) for i, p in enumerate(PIXELS)]
  }
  splits = ('digits_only_train', 'digits_only_test')
  task_data.write(folder / 'emnist_all.sqlite', dict.fromkeys(splits, split))


# Task -> what writes its files, its options, raw inputs.
CASES = {
  'shakespeare': (write_shakespeare, {}, LINES),
  'stackoverflow_nwp': (write_stackoverflow, {'num_words': 4}, SENTENCES),
  'stackoverflow_lr': (write_stackoverflow, {'num_words': 4, 'num_tags': 3}, BAGS),
  'emnist_cr': (write_emnist, {'only_digits': True}, PIXELS),
  'emnist_ae': (write_emnist, {'only_digits': True}, PIXELS),
}


@pytest.mark.parametrize('name', CASES)
def test_raw_inputs_become_those_that_were_evaluated(name, tmp_path):
  write, options, raw = CASES[name]
  write(tmp_path)
  task = tasks.load(name, str(tmp_path), **options)
  shutil.copy(inspect.getfile(type(task.preparation)), tmp_path / 'preparation.py')
  task.preparation.save(str(tmp_path / 'preparation.json'))
  # By the file beside an exported model alone.
  prepare = runpy.run_path(str(tmp_path / 'preparation.py'))['Preparation']
  prepare = prepare.load(str(tmp_path / 'preparation.json'))
  x = prepare(raw)
  y = task.validation['y']
  np.testing.assert_array_equal(x, task.validation['x'])
  assert x.dtype == task.validation['x'].dtype
  if name == 'emnist_cr':
    np.testing.assert_array_equal(prepare.labels(y), [str(3 + i) for i in range(4)])
  elif name != 'emnist_ae':
    np.testing.assert_array_equal(prepare.targets(raw), y)
