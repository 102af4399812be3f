"""Tasks on own tables: CSV, Parquet and data frames."""

import dataclasses
import decimal
import json
import unicodedata

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks.data import tables

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
  if ending == 'parquet':
    table.to_parquet(path)
  else:
    table.to_csv(path, index=False)
  return path


@pytest.mark.parametrize('ending', ['csv', 'csv.gz', 'parquet'])
def test_a_table_becomes_clients_with_inputs_and_classes(tmp_path, ending):
  path = write(TABLE, tmp_path, ending)
  if ending == 'parquet':
    load = tasks.from_parquet
  else:
    load = tasks.from_csv
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


@dataclasses.dataclass(frozen=True)
class BadTable:
  """What differs from `TABLE`, and how it is read."""

  message: str
  change: dict = dataclasses.field(default_factory=dict)
  options: dict = dataclasses.field(default_factory=dict)
  ending: str = 'csv'


@pytest.mark.parametrize(
  'bad',
  [
    BadTable(
      options=dict(client='clinic'), message="csv has no column 'clinic'; it has: hospital, age"
    ),
    BadTable(options=dict(features=[]), message='no inputs'),
    BadTable(options=dict(label='hospital'), message='a column is named twice'),
    BadTable(
      change={'outcome': [None, *['good', 'poor'] * 19, 'good']},
      message="'outcome' is empty in row 0",
    ),
    BadTable(
      change={'hospital': [None, *['1', '2'] * 19, '1']}, message="'hospital' is empty in row 0"
    ),
    BadTable(
      change={'dose': [*map(str, range(39)), '1e400']}, message="'dose' has (inf|'1e400') in row 39"
    ),
    BadTable(change={'age': few_numbers('NA')}, message="'age' is empty in row 7"),
    BadTable(
      change={'age': few_numbers('NA')},
      options=dict(label='age'),
      message="csv: 'age' is empty in row 7 .rows",
    ),
    BadTable(change={'age': few_numbers('')}, message="'age' is empty in row 7"),
    BadTable(
      change={'age': few_numbers(''), 'sex': [*[''] * 3, *['f'] * 37]},
      message=r"'age' is empty in row 7; 'sex' is empty in row 0 and 2 more \(rows",
    ),
    BadTable(options=dict(features=5), message='features is 5; give the names of columns'),
    BadTable(options=dict(features=['age', 5]), message=r"features is .'age', 5.; give the names"),
    BadTable(options=dict(label=5), message='label is 5; it must be a text'),
    BadTable(options=dict(separator=5), message='separator is 5; it must be a text'),
    BadTable(
      options=dict(missing='mode'), message="missing is 'mode'; it must be one of: refuse, drop"
    ),
    BadTable(
      options=dict(unseen='drop'), message="unseen is 'drop'; it must be one of: refuse, ignore"
    ),
    BadTable(change={'age': [*map(str, range(39)), '1_0']}, message="'age' has '1_0' in row 39"),
    BadTable(
      ending='parquet', change={'age': [[1.0, 2.0]] * ROWS}, message="'age' has array.* in row 0"
    ),
    BadTable(
      ending='parquet', change={'age': [decimal.Decimal(1)] * ROWS}, message="'age' has Decimal"
    ),
    BadTable(
      ending='parquet',
      change={'age': pd.Timestamp(2020, 1, 1)},
      message="'age' has .*2020-01-01.* in row 0.*dates",
    ),
  ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, bad):
  path = write(TABLE.assign(**bad.change), tmp_path, bad.ending)
  load = tasks.from_csv if bad.ending == 'csv' else tasks.from_parquet
  with pytest.raises(tasks.DataError, match=bad.message):
    load(path, **{'client': 'hospital', 'label': 'outcome', **bad.options})


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
  table = tables.read_csv(str(tmp_path / 'long.csv'), 'who', ',')
  assert set(table['x']) == {'0', '1', 'late'}  # No part of the file has numbers.
  assert task.preparation.classes == ('NA', 'good')


def test_decimal_commas_are_refused_by_column(tmp_path):
  path = tmp_path / 'a.csv'
  lines = [f'{i % 4};{i},5;{i};{"ab"[i % 2]}\n' for i in range(12)]
  cells = ''.join(lines).replace('3,5', '3').replace('7,5', '1.007,5e2')
  path.write_text(f'who;x;n;label\n{cells}')
  with pytest.raises(
    tasks.DataError, match=r"a.csv: the column 'x' has '0,5' in row 0 .* with a decimal point"
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


def inputs(task):
  return [column.name for column in task.preparation.columns]


@pytest.mark.parametrize('kind', ['once', 'twice', 'read again', 'commas', 'in a Parquet file'])
def test_numbers_of_rows_that_programs_saved_are_no_inputs_unless_named(tmp_path, kind):
  path = str(tmp_path / 'a.csv')
  TABLE.to_csv(path)
  if kind in ('twice', 'read again'):
    pd.read_csv(path).to_csv(path, index=kind == 'twice')
  if kind == 'commas':  # At the end of each line, and so two columns without a name.
    with open(path) as file:
      lines = [line.strip() + ',' for line in file]
    with open(path, 'w') as file:
      file.write('\n'.join(lines))
  load = tasks.from_csv
  if kind == 'in a Parquet file':
    load = tasks.from_parquet
    path = str(tmp_path / 'a.parquet')
    TABLE.assign(**{'Unnamed: 0': range(ROWS), '__index_level_0__': range(ROWS)}).to_parquet(path)
  assert inputs(load(path, 'hospital', 'outcome')) == ['age', 'sex', 'dose']
  named = load(path, 'hospital', 'outcome', features=['Unnamed: 0'], validation_by='examples')
  assert inputs(named) == ['Unnamed: 0']


def test_ids_are_left_out_with_a_word_and_not_stored(tmp_path):
  ids = {'patient_id': range(100, 100 + ROWS), 'code': [f'P-{i:04d}' for i in range(ROWS)]}
  ward_id = RNG.integers(0, 5, ROWS)  # This repeats, so it is no id of rows.
  path = write(TABLE.assign(**ids, ward_id=ward_id), tmp_path, 'csv')
  with pytest.warns(UserWarning, match="that identify rows, 'patient_id', 'code': name them by"):
    task = tasks.from_csv(path, 'hospital', 'outcome')
  assert inputs(task) == ['age', 'sex', 'dose', 'ward_id']
  task.preparation.save(str(tmp_path / 'p.json'))
  assert 'P-0001' not in (tmp_path / 'p.json').read_text()
  task = tasks.from_csv(path, 'hospital', 'outcome', features=['patient_id', 'code'])
  assert task.train.load_all()['x'].shape[1] == 1 + ROWS


def with_gaps():
  """Gaps in two columns of inputs; the ages of training rows and of others differ much."""
  table = TABLE.assign(age=np.where(TABLE['hospital'].isin(TRAINING), TABLE['age'], 1000))
  table['age'] = table['age'].astype(float).mask(np.arange(ROWS) % 9 == 4)
  table['sex'] = table['sex'].mask(np.arange(ROWS) % 10 == 3)
  return table


TRAINING = tasks.from_frame(TABLE, 'hospital', 'outcome').train.client_ids


@pytest.mark.parametrize('missing', ['mean', 'median'])
def test_gaps_become_the_mean_or_median_of_training_rows_or_a_category(tmp_path, missing):
  path = write(with_gaps(), tmp_path, 'csv')
  task = tasks.from_csv(path, 'hospital', 'outcome', missing=missing)
  assert task.train.client_ids == TRAINING
  rows = with_gaps()[TABLE['hospital'].isin(TRAINING)]
  typical = float(getattr(np, f'nan{missing}')(rows['age']))
  assert typical < 100
  age, sex = task.preparation.columns[:2]
  assert age.fill == pytest.approx(typical, rel=1e-12)
  assert (sex.categories, sex.fill) == (('', 'f', 'm'), '')
  for client in TRAINING:
    rows_of_client = rows[rows['hospital'] == client]
    expected = np.stack(
      [
        rows_of_client['age'].fillna(typical),
        rows_of_client['sex'].isna(),
        rows_of_client['sex'] == 'f',
        rows_of_client['sex'] == 'm',
      ],
      1,
    )
    np.testing.assert_allclose(
      task.train.load(client)['x'][:, :4], expected.astype(float), rtol=1e-6
    )
    np.testing.assert_array_equal(task.preparation(rows_of_client), task.train.load(client)['x'])
  task.preparation.save(str(tmp_path / 'p.json'))
  assert tasks.Preparation.load(str(tmp_path / 'p.json')) == task.preparation
  assert json.loads((tmp_path / 'p.json').read_text())['columns'][0]['fill'] == age.fill
  new = pd.DataFrame({'age': pd.array([None, 3], 'Int64'), 'sex': ['', None], 'dose': [0, 0]})
  np.testing.assert_allclose(
    task.preparation(new), [[typical, 1, 0, 0, 0], [3, 1, 0, 0, 0]], rtol=1e-6
  )


def test_rows_with_gaps_are_dropped_and_what_a_treatment_leaves_is_named():
  table = with_gaps()
  left_out = ROWS - len(table.dropna())
  with pytest.warns(UserWarning, match=f"'drop' leaves out {left_out} of {ROWS} rows; .*'age' 4"):
    task = tasks.from_frame(table, 'hospital', 'outcome', missing='drop')
  count = len(task.train.load_all()['y']) + len(task.validation['y'])
  assert count == len(table.dropna()) < ROWS
  with pytest.raises(tasks.DataError, match=r"frame: 'age' is empty in row 4 and 3 more .rows"):
    tasks.from_frame(table, 'hospital', 'outcome', missing='category')
  task = tasks.from_frame(
    table[['hospital', 'sex', 'outcome']], 'hospital', 'outcome', missing='category'
  )
  assert task.preparation.columns[0].categories == ('', 'f', 'm')
  table['outcome'] = table['outcome'].mask(np.arange(ROWS) == 6)
  with pytest.raises(tasks.DataError, match=r"frame: 'outcome' is empty in row 6 .rows"):
    tasks.from_frame(table, 'hospital', 'outcome', missing='mean')
  assert tasks.from_frame(table, 'hospital', 'outcome', missing='drop')


@pytest.mark.parametrize('labels', [[0, 1], [True, False], ['1', '0'], [0.0, 1.0]])
def test_an_empty_cell_does_not_make_a_regression_of_classes(tmp_path, labels):
  table = TABLE[['hospital', 'age']].assign(outcome=labels * (ROWS // 2))
  numbers = {name: i for i, name in enumerate(table['hospital'].unique())}
  table['hospital'] = table['hospital'].map(numbers)
  whole = tasks.from_frame(table[2:], 'hospital', 'outcome', kind='classes')
  with_empty = table.astype({'hospital': object, 'outcome': object})
  with_empty.loc[0, 'outcome'] = None
  with_empty.loc[1, 'hospital'] = None
  with_empty.to_csv(tmp_path / 'a.csv', index=False)
  for task in (
    tasks.from_csv(str(tmp_path / 'a.csv'), 'hospital', 'outcome', missing='drop'),
    tasks.from_frame(with_empty.infer_objects(), 'hospital', 'outcome', missing='drop'),
  ):
    assert tuple(map(int, task.preparation.classes)) == (0, 1)
    assert not task.preparation.is_numbers
    assert task.train.client_ids == whole.train.client_ids  # '1', and not '1.0'.
    np.testing.assert_array_equal(task.validation['y'], whole.validation['y'])


def test_numbers_beside_an_empty_cell_stay_numbers():
  table = TABLE[['hospital', 'age']].assign(outcome=np.arange(ROWS) / 4)
  table.loc[3, 'outcome'] = np.nan
  task = tasks.from_frame(table, 'hospital', 'outcome', missing='drop')
  assert task.preparation.is_numbers
  table['outcome'] = np.round(table['outcome'])
  task = tasks.from_frame(table, 'hospital', 'outcome', missing='drop', kind='numbers')
  assert task.preparation.is_numbers


def test_a_text_that_training_has_not_seen_is_refused_or_no_category():
  task = tasks.from_frame(TABLE, 'hospital', 'outcome')
  new = TABLE[:2].assign(sex=['x', 'f'])
  with pytest.raises(ValueError, match="'sex' has 'x' in row 0"):
    task.preparation(new)
  task = tasks.from_frame(TABLE, 'hospital', 'outcome', unseen='ignore')
  np.testing.assert_array_equal(task.preparation(new)[:, 1:3], [[0, 0], [1, 0]])


def test_texts_that_look_alike_are_one_client_class_category_and_column(tmp_path):
  forms = ('NFC', 'NFD')
  texts = [
    f'Köln {i % 3},{("für", "ab")[i % 2]},{i}.5,{("größer", "kleiner")[i % 2]}' for i in range(24)
  ]
  lines = [unicodedata.normalize(forms[i // 3 % 2], text) for i, text in enumerate(texts)]
  header = unicodedata.normalize('NFD', 'Größe,Prä,x,läbel')
  (tmp_path / 'a.csv').write_text('\n'.join([header, *lines]), encoding='utf-8')
  path = str(tmp_path / 'a.csv')
  for source, load in ((path, tasks.from_csv), (pd.read_csv(path), tasks.from_frame)):
    task = load(source, 'Größe', 'läbel', validation_by='examples')
    assert task.train.client_ids == ['Köln 0', 'Köln 1', 'Köln 2']
    assert task.preparation.classes == ('größer', 'kleiner')
    assert [c.name for c in task.preparation.columns] == ['Prä', 'x']
    assert task.preparation.columns[0].categories == ('ab', 'für')
  rows = pd.DataFrame(
    {unicodedata.normalize('NFD', 'Prä'): [unicodedata.normalize('NFD', 'für ')], 'x': [1]}
  )
  np.testing.assert_array_equal(task.preparation(rows), [[0, 1, 1]])


def test_labels_that_hardly_repeat_are_no_classes():
  for labels in ([f'{i} kg' for i in range(ROWS)], range(ROWS)):
    with pytest.raises(tasks.DataError, match='labels have 40 different values in 40 rows'):
      tasks.from_frame(TABLE.assign(outcome=labels), 'hospital', 'outcome')
  # As many that repeat are classes.
  task = tasks.from_frame(pd.concat([TABLE.assign(outcome=range(ROWS))] * 2), 'hospital', 'outcome')
  assert len(task.preparation.classes) == ROWS
