"""What a task says of itself: one line for every task, three for a user's own data."""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks

TABLE = pd.DataFrame(
  {
    'hospital': np.repeat(['north', 'south', 'east', 'west'], [10, 20, 30, 40]),
    'age': np.arange(100),
    'smoker': np.tile(['yes', 'no'], 50),
    'seen': pd.date_range('2020-01-01', periods=100),
    'outcome': np.tile(['good', 'good', 'good', 'poor'], 25),
    'late': np.tile([0, 1], 50),
    'days': np.linspace(0.5, 4, 100),
  }
)


def described(label, **options):
  options = {'dates': 'parts', 'validation_by': 'examples', 'source': 'x.csv', **options}
  features = ['age', 'smoker', 'seen']
  return tasks.describe(tasks.from_frame(TABLE, 'hospital', label, features=features, **options))


def test_own_data_are_described_in_three_lines():
  lines = described('outcome', validation=0.2, standardise=True)
  assert lines[1:] == [
    'Inputs: age, smoker (2 categories), seen (date, 5 parts); 8 numbers an example, standardised.',
    'Clients: 4 train, with 8 (client north) to 32 (client west) examples; validation on 20, of '
    'the same clients (20% of their examples).',
  ]
  task = tasks.from_frame(
    TABLE, 'hospital', 'outcome', dates='parts', validation_by='examples', validation=0.2
  )
  good, poor = np.bincount(task.train.load_all()['y']) / 80
  assert lines[0] == f'Predicts outcome: 2 classes: good {good:.1%}, poor {poor:.1%}.'


def test_the_guide_has_the_lines_of_its_file(tmp_path):
  page = (pathlib.Path(__file__).parents[2] / 'docs' / 'guide' / 'own_data.md').read_text('utf-8')
  scope = {}
  exec(re.search(r'```python\n(.*?)```', page, re.DOTALL)[1], scope)
  lines = tasks.describe(scope['load'](str(tmp_path), seed=0))
  assert '\n'.join(f'    {line}' for line in lines) in page


def test_held_out_clients_are_named():
  last = described('outcome', validation_by='clients', validation=0.5, seed=1)[-1]
  task = tasks.from_frame(TABLE, 'hospital', 'outcome', dates='days', validation=0.5, seed=1)
  others = sorted({'north', 'south', 'east', 'west'} - set(task.train.client_ids))
  assert last.endswith(f'of 2 other clients: {", ".join(others)}.')
  one = described('outcome', validation_by='clients', validation=0.1, seed=1)[-1]
  assert ', of another client, ' in one
  many = tasks.from_arrays(np.ones([60, 1]), np.arange(60) % 2, np.arange(60), validation=0.5)
  assert 'of 30 other clients: ' in tasks.describe(many)[-1]
  assert tasks.describe(many)[-1].endswith(' and others.')
  pair = (np.ones([3, 1]), [0, 1, 0])
  given = tasks.from_arrays(np.ones([60, 1]), np.arange(60) % 2, np.arange(60), validation=pair)
  assert tasks.describe(given)[-1].endswith(
    'validation on 3, of the arrays that were given for it.'
  )


@pytest.mark.parametrize(
  'label, options, words',
  [
    ('days', {}, r'Predicts days: numbers from [0-9.]+ to [0-9.]+, mean [0-9.]+\.$'),
    ('late', {'kind': 'numbers'}, r'Predicts late: numbers from 0 to 1, mean 0\.\d+\.$'),
    (['days', 'age'], {}, 'Predicts days: numbers from .*; age: numbers from '),
    (
      ['late', 'sick'],
      {},
      r'Predicts 2 labels of 0 or 1; the share of 1: late \d+.\d%, sick 100.0',
    ),
  ],
)
def test_each_kind_of_target_is_described(label, options, words):
  table = TABLE.assign(sick=1)
  features = ['smoker']
  task = tasks.from_frame(table, 'hospital', label, features=features, **options)
  first = tasks.describe(task)[0]
  assert pd.Series([first]).str.match(words).all(), first


def test_many_classes_and_columns_are_counted():
  rng = np.random.default_rng(0)
  table = pd.DataFrame(rng.normal(size=(300, 15)), columns=[f'column {i}' for i in range(15)])
  table = table.assign(who=np.arange(300) % 5, what=np.arange(300) % 30)
  lines = tasks.describe(tasks.from_frame(table, 'who', 'what', kind='classes'))
  assert lines[0].startswith('Predicts what: 30 classes, the most frequent: ')
  assert lines[0].count('%') == 3
  assert 'column 11, and 3 more; 15 numbers an example' in lines[1]


def test_a_task_is_printed_in_one_line():
  task = tasks.load('digits', num_clients=12)
  assert str(task) == repr(task)
  count = len(task.train.load_all()['y'])
  assert str(task) == (
    f"Task 'digits': 12 clients with {count:,} examples, 359 validation examples, inputs "
    '[28, 28, 1], targets: class numbers; scikit-learn digits (embedded)'
  )
  assert tasks.describe(task) == []
  of_table = tasks.from_frame(TABLE, 'hospital', 'outcome', features=['age'], source='x.csv')
  assert '2 classes; x.csv' in str(of_table)
  labels = tasks.from_frame(TABLE.assign(sick=1), 'hospital', ['late', 'sick'], features=['age'])
  assert ', 2 labels; ' in str(labels)
  assert 'targets: numbers; ' in str(tasks.load('least_squares'))
