"""The rows that messages on a table name are the user's, also without those that were dropped."""

import pickle

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks

ROWS = 40
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(
  {
    'hospital': [f'{i % 8:03d}' for i in range(ROWS)],
    'age': RNG.integers(20, 90, ROWS),
    'sex': RNG.choice(['f', 'm'], ROWS),
    'outcome': RNG.choice(['good', 'poor'], ROWS),
  }
)


@pytest.mark.parametrize(
  'column, bad, options, words',
  [
    ('age', np.inf, {}, "the column 'age' has inf in row 6 (rows count from 0)"),
    ('day', '2020-02-31', {'dates': 'days'}, "the column 'day' has '2020-02-31' in row 6 (rows"),
    ('sex', 7, {}, "the column 'sex' has 7 in row 6 (rows count from 0): give texts"),
    ('score', np.inf, {}, 'the label, row 6, has inf'),
    ('score', 1e300, {}, 'the label, row 6, has inf'),  # In float32.
    ('score', 0.5, {'kind': 'classes'}, "the label is 0.5 in row 6 (rows count from 0): kind='cl"),
  ],
)
def test_rows_in_messages_are_the_tables_also_without_those_that_were_dropped(
  column, bad, options, words
):
  table = TABLE.assign(score=1.0 * (np.arange(ROWS) % 2), day='2020-12-31')
  table = table.drop(columns='outcome').astype({'age': float, 'sex': object})
  table.loc[2:4, 'age'] = np.nan
  table.loc[6, column] = bad
  with pytest.raises(tasks.DataError) as error:
    tasks.from_frame(table, 'hospital', 'score', missing='drop', **options)
  assert words in str(error.value)
  assert 'cannot be read' not in str(error.value)  # The table was read.
  copied = pickle.loads(pickle.dumps(error.value))  # As a worker of another process sends it.
  assert str(copied) == str(error.value)


def test_rows_of_validation_arrays_are_their_own():
  table = TABLE.assign(score=np.arange(ROWS) / 4).drop(columns='outcome').astype({'age': float})
  table.loc[2:4, 'age'] = np.nan
  given = tasks.from_frame(table.dropna(), 'hospital', 'score')
  x = np.array(given.validation['x'])
  x[1, 0] = np.nan
  validation = (x, given.validation['y'])
  with pytest.raises(tasks.DataError, match='the x of validation, row 1, has nan'):
    tasks.from_frame(table, 'hospital', 'score', missing='drop', validation=validation)
