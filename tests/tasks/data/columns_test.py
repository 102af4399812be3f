"""What the columns of a table are: numbers, categories, or neither."""

import itertools

import numpy as np
import pandas as pd
import pytest

from tff_adaptive_tasks.data import columns

ROWS = 400
RNG = np.random.default_rng(0)
WORDS = ['fever', 'cough', 'pain', 'night', 'walk', 'sleep', 'since', 'days', 'left', 'right']
WORDS += ['knee', 'back', 'mild', 'severe']
NOTES = [' '.join(RNG.choice(WORDS, 40)) for _ in range(ROWS)]


def kinds(values):
  return columns.columns_of({'col': values}, ['col'])[0].categories


@pytest.mark.parametrize(
  'values, message',
  [
    (NOTES, 'has 400 different texts in 400 rows.*TextVectorization'),
    (NOTES[:30] * 20, 'has 30 different texts in 600 rows'),  # Sentences, though they repeat.
    (
      [f'{a} {b}' for a, b in itertools.product(WORDS, WORDS)],
      'has 196 different texts in 196 rows',
    ),
    (
      [str(d)[:10] for d in pd.date_range('2021-01-01', periods=ROWS)],
      "'2021-01-01' in row 0.*dates",
    ),
    ([f'{i % 28 + 1}.3.{1990 + i % 30}' for i in range(ROWS)], "'1.3.1990' in row 0 .*dates"),
    ([f'{i % 28 + 1:02d}/03/99 12:{i % 60}' for i in range(ROWS)], 'dates'),
    (np.arange(ROWS).astype('datetime64[D]'), '1970.* in row 0 .*dates'),
    ([f'{i / 10:.1f}%' for i in range(ROWS)], "'0.0%' in row 0 .*12.3 for 12.3%"),
    (
      [f'{i // 9} {i:03d}' if i > 200 else str(i) for i in range(ROWS)],
      "'22 201' in row 201 .*1 234",
    ),
    ([f"{i}'000" for i in range(ROWS)], 'numbers as texts'),
    ([f'{i / 10}' for i in range(ROWS)], "'0.0' in row 0 .*numbers as texts"),
    ([f'{i / 10:.1f} kg' for i in range(ROWS)], 'numbers as texts'),
    ([f'<{i / 10}' if i % 3 else f'{i / 10}' for i in range(ROWS)], "'<0.1' in row 1"),
    ([f'{i} €'[::-1] for i in range(11, 99)], 'numbers as texts'),
  ],
)
def test_texts_that_are_no_categories_are_refused(values, message):
  with pytest.raises(ValueError, match=f"the column 'col' .*{message}"):
    kinds(values)


@pytest.mark.parametrize(
  'values',
  [
    ['2021-01-01', '2021-07-01'] * 9,  # Waves of a survey.
    ['10 mg', '20 mg', '50 mg'] * 9,
    [f'{i % 30}-{i % 30 + 9}' for i in range(90)],  # Ranges of ages.
    [f'{i % 8}{"ABC"[i % 3]}' for i in range(90)],  # Forms of a school.
    [f'0{i % 50}' for i in range(90)],  # Codes of digits.
    [f'Bachelor of {WORDS[i % 14]} and {WORDS[i % 11]}' for i in range(900)],
    NOTES[:20],  # Few.
  ],
)
def test_names_of_categories_are_accepted(values):
  assert kinds(values) == tuple(sorted(set(values)))


def test_a_column_of_more_texts_than_inputs_can_be_is_refused():
  ids = [f'p{i}' for i in range(1001)]
  with pytest.raises(ValueError, match="'col' has more than 1,000 categories; each of 1,001 texts"):
    kinds(ids)
  assert len(kinds(ids[1:])) == 1000
  few = {'a': [*map(str, range(8)), 'x'], 'b': ['a,b'] * 9}  # Up to a tenth would be a mistake.
  assert len(columns.columns_of(few, 'ab')[0].categories) == 9
  with pytest.raises(ValueError, match=r"'a' has 'x' in row 8 .*: others are numbers"):
    columns.columns_of({'a': [*few['a'], '9']}, 'a')


def of_unnamed(texts):
  table = {'col': np.array(texts, object)}
  return columns.columns_of(table, ['col'], are_named=False)[0].categories


@pytest.mark.parametrize(
  'texts',
  [
    [f'{i // 60:02d}:{i % 60:02d}' for i in range(90)],
    [f'1:02:{i:02d}' for i in range(60)],
    [f'{100 + i}/{60 + i}' for i in range(50)],
    [f'{i} years {i % 12} months' for i in range(60)],
    [f'{i}e3/ul' for i in range(60)],
    [f'({i}.5)' if i % 2 else f'{i}.5' for i in range(60)],
    [hex(i) for i in range(60)],
  ],
)
def test_numbers_in_one_form_are_categories_only_if_the_column_is_named(texts):
  with pytest.raises(ValueError, match='these are numbers as texts: give numbers alone'):
    of_unnamed(texts * 10)
  assert len(kinds(texts * 10)) == len(set(texts))


@pytest.mark.parametrize(
  'form',
  [
    '{}-{}',
    'ward {}',
    'C{}.{}',
    'room-{}',
    '{} - {}',
    '[{}, {})',
    '{} to {}',
    '${},000-${},999',
    '{}%-{}%',
    '{}x{}',
    '{}/{} R16',
    '2020-W{}',
    '{}p{}',
    '{}+{}',
  ],
)
def test_codes_sizes_and_ranges_with_numbers_are_categories(form):
  texts = [form.format(i, i + 5) for i in range(18)]
  assert len(of_unnamed(texts * 5)) == 18


def test_an_empty_text_is_a_category_beside_others():
  texts = [f'R{i % 20}' for i in range(80)]
  assert of_unnamed([*texts, '', '', '']) == tuple(sorted({'', *texts}))


def test_many_texts_that_hardly_repeat_are_categories_only_if_the_column_is_named():
  table = {'col': np.array([f'P{i // 2}' for i in range(60)], object)}
  assert len(columns.columns_of(table, ['col'])[0].categories) == 30
  with pytest.raises(
    ValueError, match=r"'col' has 30 different texts in 60 rows.* name the column"
  ):
    columns.columns_of(table, ['col'], are_named=False)
  thrice = {'col': np.array([f'P{i // 3}' for i in range(90)], object)}
  assert len(columns.columns_of(thrice, ['col'], are_named=False)[0].categories) == 30


@pytest.mark.parametrize(
  'name, values, expected',
  [
    ('patient_id', np.arange(40), True),
    ('PatientID', RNG.permutation(400)[:40], True),
    ('Nr', np.arange(40), True),
    ('ward_id', np.arange(40) % 5, False),
    ('humidity', np.arange(40), False),
    ('paid', np.arange(40), False),
    ('X', np.arange(1, 41), True),  # Row numbers, as R calls them.
    ('#', np.arange(40.0), True),
    ('index', RNG.permutation(400)[:40].astype(np.float64), True),
    ('X', 5 + np.arange(40), False),
    ('X', RNG.permutation(40), False),
    ('x', np.array([*range(39), np.nan]), False),
    ('at', np.array([f'{i // 60}:{i % 60:02d}' for i in range(40)], object), False),  # Refused.
    ('patient_id', np.arange(40.0) / 3, False),
    ('code', np.array([f'P{i}' for i in range(40)], object), True),
    ('code', np.array([f'P{i % 20}' for i in range(40)], object), False),
    ('name', np.array([f'Ann {i}' for i in range(40)], object), False),  # Refused as prose.
    ('when', np.array([f'2021-01-{i % 28}' for i in range(40)], object), False),
  ],
)
def test_columns_that_identify_rows_are_known_by_name_and_values(name, values, expected):
  assert columns.is_id(name, values) == expected
