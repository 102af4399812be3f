"""Columns of dates: days, parts, gaps, and what is refused with the way out."""

import datetime

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import preparation

DAYS = pd.date_range('1999-12-25 06:30', periods=40, freq='31h')
TABLE = pd.DataFrame(
  {
    'who': np.tile(['a', 'b', 'c', 'd'], 10),
    'seen': DAYS,
    'age': np.arange(40),
    'sick': np.arange(40) % 3 > 0,
  }
)


def build(table, **options):
  return tasks.from_frame(table, 'who', 'sick', validation_by='examples', **options)


def as_texts(table, pattern='%Y-%m-%d %H:%M'):
  return table.assign(seen=table['seen'].dt.strftime(pattern))


def inputs(task, table):
  return task.preparation(table)[:, :-1]  # Without the age.


FORMS = {
  'datetime64': lambda table: table,
  'seconds': lambda table: table.assign(seen=table['seen'].astype('datetime64[s]')),
  'texts': as_texts,
  'iso': lambda table: as_texts(table, '%Y-%m-%dT%H:%M:%S'),
  'objects': lambda table: table.assign(seen=table['seen'].dt.to_pydatetime().tolist()),
}


@pytest.mark.parametrize('form', FORMS)
def test_a_date_becomes_the_days_since_2000(form):
  table = FORMS[form](TABLE)
  task = build(table, dates='days')
  expected = [(day - pd.Timestamp(2000, 1, 1)) / pd.Timedelta(1, 'D') for day in DAYS]
  np.testing.assert_allclose(inputs(task, table)[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize('form', FORMS)
def test_a_date_becomes_its_parts(form):
  table = FORMS[form](TABLE)
  x = inputs(build(table, dates='parts'), table)
  clock = DAYS.hour + DAYS.minute / 60
  expected = np.stack([DAYS.year, DAYS.month, DAYS.day, DAYS.day_of_week, clock], 1)
  np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_dates_without_a_time_of_day_come_from_a_file(tmp_path):
  path = tmp_path / 'visits.csv'
  as_texts(TABLE, '%Y-%m-%d').to_csv(path, index=False)
  task = tasks.from_csv(str(path), 'who', 'sick', dates='parts')
  raw = {'seen': ['2024-02-29', datetime.date(1965, 12, 31)], 'age': [1, 2]}
  np.testing.assert_array_equal(
    inputs(task, raw),
    [[2024, 2, 29, 3, 0], [1965, 12, 31, 4, 0]],  # A Thursday, a Friday.
  )
  task.preparation.save(str(tmp_path / 'preparation.json'))
  loaded = preparation.Preparation.load(str(tmp_path / 'preparation.json'))
  np.testing.assert_array_equal(loaded(raw), task.preparation(raw))


@pytest.mark.parametrize('missing', ['mean', 'median'])
def test_gaps_become_the_mean_or_median_day_of_training_rows(missing):
  table = TABLE.assign(seen=DAYS.where(TABLE.index != 7))
  task = build(table, dates='days', missing=missing, seed=2)
  trained = {tuple(row) for row in task.train.load_all()['x'].tolist()}
  known = inputs(build(TABLE, dates='days', seed=2), TABLE)[:, 0]
  is_training = [row != 7 and (known[row], row) in trained for row in range(40)]
  expected = getattr(np, missing)(known[is_training].astype(np.float64))
  np.testing.assert_allclose(inputs(task, table)[7, 0], expected, rtol=1e-6)
  gap = {'seen': [None], 'age': [0]}
  np.testing.assert_allclose(inputs(task, gap)[0, 0], expected, rtol=1e-6)


def test_rows_without_a_date_are_dropped():
  table = TABLE.assign(seen=DAYS.where(TABLE.index != 7))
  task = build(table, dates='days', missing='drop')
  assert len(task.train.load_all()['x']) + len(task.validation['x']) == 39
  with pytest.raises(ValueError, match=r"'seen' has .* in row 0 .*: fill it in"):
    task.preparation({'seen': [None], 'age': [0]})


def test_a_few_dates_may_be_categories():
  table = as_texts(TABLE.assign(seen=DAYS[0] + pd.to_timedelta(np.arange(40) % 3, 'D')))
  assert len(build(table).preparation.columns[0].categories) == 3
  assert build(table, dates='days').preparation.columns[0].categories is None


@pytest.mark.parametrize(
  'change, options, words',
  [
    ({}, {}, r"'seen' has .* these are dates: dates='days' makes"),
    ({'seen': DAYS.strftime('%Y-%m-%d')}, {}, "these are dates: dates='days' makes"),
    (
      {'seen': DAYS.strftime('%d.%m.%Y')},
      {'dates': 'days'},
      "has '25.12.1999' in row 0 .*not all exist and are written as 2020-12-31.*pd.to_datetime",
    ),
    ({'seen': ['2020-02-31', *DAYS.strftime('%Y-%m-%d')[1:]]}, {'dates': 'days'}, '2020-02-31'),
    ({'seen': DAYS.tz_localize('UTC')}, {'dates': 'parts'}, 'has a time zone: give dates without'),
    ({'seen': DAYS.date}, {}, "these are dates: dates='days' makes"),
    ({'seen': DAYS - DAYS[0]}, {'dates': 'days'}, 'these are durations: give numbers'),
    ({}, {'dates': 'weeks'}, "dates is 'weeks'; it must be one of: refuse, days, parts"),
    (
      {'seen': DAYS.strftime('%Y-%m-%d').where(TABLE.index != 7)},
      {'dates': 'days', 'missing': 'category'},
      "the column 'seen' has dates: missing='category' is for texts",
    ),
  ],
)
def test_dates_that_cannot_be_used_are_refused(change, options, words):
  with pytest.raises(tasks.DataError, match=words):
    build(TABLE.assign(**change), **options)


@pytest.mark.parametrize('value', ['31.12.2020', '2020-02-31', 'soon', 5])
def test_what_is_no_date_at_prediction_is_refused(value):
  task = build(TABLE, dates='days')
  with pytest.raises(ValueError, match='give a date without time zone, as 2020-12-31'):
    task.preparation({'seen': [value], 'age': [0]})
