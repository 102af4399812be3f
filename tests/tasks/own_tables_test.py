"""Tasks on own files."""

import numpy as np
import pandas as pd
import pytest

import tasks

ROWS = 40
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(
  {
    'hospital': [f'{i % 8:03d}' for i in range(ROWS)],
    'age': RNG.integers(20, 90, ROWS),
    'sex': RNG.choice(['f', 'm'], ROWS),
    'dose': RNG.normal(size=ROWS),
    'outcome': RNG.choice(['good', 'poor'], ROWS),
  }
)


def write(table, folder, ending):
  path = str(folder / f'data.{ending}')
  table.to_csv(path, index=False) if ending == 'csv' else table.to_parquet(path)
  return path


@pytest.mark.parametrize('ending, load', [('csv', tasks.from_csv), ('parquet', tasks.from_parquet)])
def test_a_table_becomes_clients_with_inputs_and_classes(tmp_path, ending, load):
  path = write(TABLE, tmp_path, ending)
  task = load(path, client='hospital', label='outcome')
  assert task.source == path
  assert set(task.train.client_ids) < set(TABLE['hospital'])  # '007' stays a text.
  assert [c.name for c in task.preparation.columns] == ['age', 'sex', 'dose']
  assert task.preparation.columns[1].categories == ('f', 'm')
  assert task.preparation.classes == ('good', 'poor')
  for client in task.train.client_ids:
    rows = TABLE[TABLE['hospital'] == client]
    data = task.train.load(client)
    np.testing.assert_allclose(
      data['x'], np.stack([rows['age'], rows['sex'] == 'f', rows['sex'] == 'm', rows['dose']], 1)
    )
    np.testing.assert_array_equal(data['y'], rows['outcome'] == 'poor')


def test_features_and_options_are_passed_on(tmp_path):
  path = write(TABLE, tmp_path, 'csv')
  task = tasks.from_csv(
    path, 'hospital', 'dose', features=['age'], standardise=True, name='doses', model='mlp'
  )
  assert (task.name, task.metric) == ('doses', 'loss')
  assert task.train.load_all()['x'].shape[1] == 1
  held = TABLE[~TABLE['hospital'].isin(task.train.client_ids)]
  np.testing.assert_allclose(
    np.sort(task.preparation(held)[:, 0]), np.sort(task.validation['x'][:, 0]), rtol=1e-6
  )


def test_separators_and_spaces(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text(
    'who; x; label\n' + ''.join(f'{i % 4}; {i}.5; {"ab"[i % 2]}\n' for i in range(12))
  )
  task = tasks.from_csv(str(path), 'who', 'label', separator=';')
  assert task.preparation.classes == ('a', 'b')


def test_arrays_of_a_file(tmp_path):
  path = str(tmp_path / 'a.npz')
  np.savez(path, x=np.arange(24.0).reshape(12, 2), y=np.arange(12) % 2, client=np.arange(12) % 3)
  task = tasks.from_npz(path)
  assert task.source == path
  assert len(task.train.client_ids) == 2
  np.savez(path, images=np.ones([12, 2]), digit=np.arange(12) % 2, writer=np.arange(12) % 3)
  assert len(tasks.from_npz(path, 'writer', 'digit', features='images').train) == 2
  with pytest.raises(tasks.DataError, match='lacks x, y, client; it has'):
    tasks.from_npz(path)


@pytest.mark.parametrize(
  'change, options, message',
  [
    ({}, dict(client='clinic'), "no column 'clinic'; it has: hospital, age"),
    ({}, dict(label='result'), "no column 'result'"),
    ({}, dict(features=['size']), "no column 'size'"),
    ({}, dict(features=[]), 'no inputs'),
    (
      {'dose': np.where(np.arange(ROWS) == 5, np.nan, 1.0)},
      {},
      "the column 'dose' is nan in row 5",
    ),
    (
      {'dose': np.where(np.arange(ROWS) == 5, np.inf, 1.0)},
      {},
      "the column 'dose' is inf in row 5",
    ),
    ({'sex': ['f', None, *['m'] * 38]}, {}, "the column 'sex' has texts but nothing in row 1"),
    ({'outcome': [None, *['good', 'poor'] * 19, 'good']}, {}, "'outcome' is empty in row 0"),
    ({'hospital': [None, *['1', '2'] * 19, '1']}, {}, "'hospital' is empty in row 0"),
    ({'hospital': ['1'] * ROWS}, {}, 'all rows belong to one client'),
  ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, change, options, message):
  path = write(TABLE.assign(**change), tmp_path, 'csv')
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_csv(path, **{'client': 'hospital', 'label': 'outcome', **options})


@pytest.mark.parametrize('content', [b'', b'a,b\n1,2,3,4\n5,6\n', b'\xff\xfe\x00a,b\n'])
def test_files_that_are_no_tables_are_refused_in_one_line(tmp_path, content):
  path = tmp_path / 'a.csv'
  path.write_bytes(content)
  for load in (tasks.from_csv, tasks.from_parquet):
    with pytest.raises(tasks.DataError) as raised:
      load(str(path), 'a', 'b')
    assert str(path) in str(raised.value)
    assert '\n' not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
  with pytest.raises(tasks.DataError, match='there is no file'):
    tasks.from_csv(str(tmp_path / 'none.csv'), 'a', 'b')


def test_a_file_with_a_header_alone_is_refused(tmp_path):
  path = write(TABLE[:0], tmp_path, 'csv')
  with pytest.raises(tasks.DataError, match='has no rows'):
    tasks.from_csv(path, 'hospital', 'outcome')
