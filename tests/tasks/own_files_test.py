"""Tasks on own files."""

import decimal

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import own_files

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
  table.to_parquet(path) if ending == 'parquet' else table.to_csv(path, index=False)
  return path


@pytest.mark.parametrize('ending', ['csv', 'csv.gz', 'parquet'])
def test_a_table_becomes_clients_with_inputs_and_classes(tmp_path, ending):
  path = write(TABLE, tmp_path, ending)
  load = tasks.from_parquet if ending == 'parquet' else tasks.from_csv
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
  TABLE.assign(dose=1.7e9 + np.arange(ROWS)).to_csv(path)  # Times, after the column of the index.
  of_times = tasks.from_csv(path, 'hospital', 'outcome', standardise=True)
  assert [column.name for column in of_times.preparation.columns] == ['age', 'sex', 'dose']
  x = of_times.train.load_all()['x'][:, -1]
  assert len(np.unique(x)) == len(x)
  held = TABLE[~TABLE['hospital'].isin(task.train.client_ids)]
  np.testing.assert_allclose(
    np.sort(task.preparation(held)[:, 0]), np.sort(task.validation['x'][:, 0]), rtol=1e-6
  )


def test_blanks_around_texts_make_no_other_class_client_or_category(tmp_path):
  path = tmp_path / 'a.csv'
  lines = [f'{i % 4:02d}{" " * (i % 3)}, "{"uv"[i % 2]} " ,{i},{"ab"[i % 2]}\t' for i in range(24)]
  path.write_text('who ,kind,x,label \n' + ' \n'.join(lines) + '\n')
  task = tasks.from_csv(str(path), 'who', 'label', validation_by='examples')
  assert task.preparation.classes == ('a', 'b')
  assert task.train.client_ids == ['00', '01', '02', '03']
  assert task.preparation.columns[0].categories == ('u', 'v')
  lines = [f'{i % 4},{i},{("a", "b", "  ")[i % 3]}\n' for i in range(9)]
  path.write_text('who,x,label\n' + ''.join(lines))
  with pytest.raises(tasks.DataError, match="'label' is empty in row 2"):
    tasks.from_csv(str(path), 'who', 'label')


def few_numbers(cell):
  """A column that would pass for categories with another cell in row 7."""
  return [cell if i == 7 else str(i % 3) for i in range(ROWS)]


@pytest.mark.parametrize(
  'ending, change, options, message',
  [
    ('csv', {}, dict(client='clinic'), "csv has no column 'clinic'; it has: hospital, age"),
    ('csv', {}, dict(features=[]), 'no inputs'),
    ('csv', {}, dict(label='hospital'), 'a column is named twice'),
    ('csv', {'outcome': [None, *['good', 'poor'] * 19, 'good']}, {}, "'outcome' is empty in row 0"),
    ('csv', {'hospital': [None, *['1', '2'] * 19, '1']}, {}, "'hospital' is empty in row 0"),
    ('csv', {'dose': [*map(str, range(39)), '1e400']}, {}, "'dose' has '1e400' in row 39"),
    ('csv', {'age': few_numbers('NA')}, {}, "'age' has nan in row 7"),
    ('csv', {'age': few_numbers('NA')}, dict(label='age'), "csv: .* 'age' is empty in row 7"),
    ('csv', {'age': few_numbers('')}, {}, "'age' has nan in row 7"),
    ('csv', {'age': [*map(str, range(39)), '1_0']}, {}, "'age' has '1_0' in row 39"),
    ('parquet', {'age': [[1.0, 2.0]] * ROWS}, {}, "'age' has array.* in row 0"),
    ('parquet', {'age': [decimal.Decimal(1)] * ROWS}, {}, "'age' has Decimal"),
    ('parquet', {'age': pd.Timestamp(2020, 1, 1)}, {}, "'age' has .*2020-01-01.* in row 0"),
  ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, ending, change, options, message):
  path = write(TABLE.assign(**change), tmp_path, ending)
  load = tasks.from_csv if ending == 'csv' else tasks.from_parquet
  with pytest.raises(tasks.DataError, match=message):
    load(path, **{'client': 'hospital', 'label': 'outcome', **options})


def test_na_and_none_are_texts_where_the_others_are(tmp_path):
  change = {
    'hospital': ['NA', 'null', 'DE', 'FR'] * (ROWS // 4),
    'sex': ['None', 'f', 'm', 'n/a'] * (ROWS // 4),
    'outcome': ['NA', 'good'] * (ROWS // 2),
  }
  path = write(TABLE.assign(**change), tmp_path, 'csv')
  task = tasks.from_csv(path, 'hospital', 'outcome', validation_by='examples')
  assert set(task.train.client_ids) == {'NA', 'null', 'DE', 'FR'}
  assert task.preparation.columns[1].categories == ('None', 'f', 'm', 'n/a')
  (tmp_path / 'long.csv').write_text('who,x,y\n' + '1,0,a\n2,1,b\n' * 150_000 + '1,late,a\n')
  table = own_files._read_csv(str(tmp_path / 'long.csv'), 'who', ',')
  assert set(table['x']) == {'0', '1', 'late'}  # No part of the file has numbers.
  assert task.preparation.classes == ('NA', 'good')


def test_decimal_commas_are_refused_by_column(tmp_path):
  path = tmp_path / 'a.csv'
  lines = [f'{i % 4};{i},5;{i};{"ab"[i % 2]}\n' for i in range(12)]
  cells = ''.join(lines).replace('3,5', '3').replace('7,5', '1.007,5e2')
  path.write_text(f'who;x;n;label\n{cells}')
  with pytest.raises(
    tasks.DataError, match=r"a.csv cannot .*'x' has '0,5' in row 0 .* with a decimal point"
  ):
    tasks.from_csv(str(path), 'who', 'label', separator=';')
  assert tasks.from_csv(str(path), 'who', 'label', features='n', separator=';')


def rows(*lines, count=12):
  return '\n'.join([*lines, *(f'{i % 4},{i}.5,{"ab"[i % 2]}' for i in range(count))]) + '\n'


@pytest.mark.parametrize(
  'text, message',
  [
    (rows('who,x,label,label'), 'Duplicate names'),
    (rows('who,x,label').replace('a\n', 'a,7\n').replace('b\n', 'b,8\n'), 'loss of data'),
    (rows('who,x,label', count=0), 'has no rows'),
  ],
)
def test_a_text_that_is_no_table_or_would_be_mistaken_is_refused(tmp_path, text, message):
  path = tmp_path / 'a.csv'
  path.write_text(text)
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_csv(str(path), 'who', 'label')
  path.write_text(rows('who,x,label'))
  assert tasks.from_csv(str(path), 'who', 'label').preparation.classes == ('a', 'b')


def test_the_index_of_a_saved_data_frame_is_no_column_and_nullable_numbers_are_numbers(tmp_path):
  path = write(TABLE.set_index('age'), tmp_path, 'parquet')
  task = tasks.from_parquet(path, 'hospital', 'outcome')
  assert [c.name for c in task.preparation.columns] == ['sex', 'dose']
  changes = {'age': TABLE['age'].astype('Int64'), 'outcome': (TABLE['age'] % 2).astype('Int8')}
  path = write(TABLE.assign(**changes), tmp_path, 'parquet')
  task = tasks.from_parquet(path, 'hospital', 'outcome')
  assert task.preparation.columns[0].categories is None
  assert task.preparation.classes == (0, 1)
