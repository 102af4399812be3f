"""scripts/comparison/from_files.py: what the files of users become, and what is refused."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from scripts.comparison import problems

_FASHION = problems.PROBLEMS['fashion'].flags[0].removeprefix('--task=')
_ADULT = problems.PROBLEMS['adult'].flags[0].removeprefix('--task=')


def _row(age: int, degree: str, job: str, income: str) -> str:
  numbers = f'{age}, {age}, {age}'
  rest = f'Divorced, Sales, Wife, White, Male, {numbers}, Peru, {income}'
  return f'{age}, {job}, {age}, {degree}, {age}, {rest}'


@pytest.fixture
def adult(tmp_path):
  """Forty rows of two degrees; in the test file a job that adult.data has not, and one unknown."""
  rows = []
  for age in range(20, 60):
    income = '>50K' if age >= 50 else '<=50K'
    rows.append(_row(age, ('Masters', '10th')[age % 2], ('Private', '?')[age % 4 == 0], income))
  (tmp_path / 'adult.data').write_text('\n'.join(rows) + '\n\n')
  tests = ['|1x3 Cross validator', _row(39, '10th', 'Private', '>50K.')]
  tests += [_row(59, 'Masters', 'Never-worked', '<=50K.'), _row(59, 'Masters', '?', '<=50K.')]
  (tmp_path / 'adult.test').write_text('\n'.join(tests) + '\n\n')
  return tmp_path


def test_adults_clients_are_the_levels_of_education(adult):
  task = tasks.load(_ADULT, data_dir=str(adult), seed=1)
  assert task.train.client_ids == ['10th', 'Masters']
  train = task.train.load_all()
  assert len(train['y']) == 36  # A tenth of adult.data is for tuning only.
  tuning = tasks.load(_ADULT, data_dir=str(adult), seed=1, part='tuning').validation
  assert len(tuning['y']) == 4
  rows = np.concatenate([train['x'], tuning['x']])
  assert len(np.unique(rows, axis=0)) == 40
  assert train['y'].sum() + tuning['y'].sum() == 10
  # Ages first; then one job, two degrees and the one value of six other columns.
  np.testing.assert_allclose(train['x'][:, 0].mean(), 0, atol=1e-6)
  np.testing.assert_allclose(train['x'][:, 0].std(), 1, rtol=1e-5)


def test_adults_test_file_is_scaled_as_the_rows_that_train(adult):
  task = tasks.load(_ADULT, data_dir=str(adult), seed=1)
  validation = task.validation
  assert validation['y'].tolist() == [1, 0, 0]
  ages = np.unique(task.train.load_all()['x'][:, 0])
  assert validation['x'][0, 0] in ages or validation['x'][1, 0] in ages
  # The row of a job that adult.data has not looks like that of an unknown one.
  np.testing.assert_array_equal(validation['x'][1], validation['x'][2])
  assert not np.array_equal(validation['x'][0, 1:], validation['x'][1, 1:])


@pytest.mark.parametrize(
  'content, words',
  [
    (None, 'is missing'),
    ('', 'is empty'),
    ('39, Private, 1\n', 'has 3 columns, not 15'),
    (b'\xff\xfe\x00', 'cannot be read'),
  ],
)
def test_other_files_are_refused(adult, content, words):
  path = adult / 'adult.test'
  path.unlink()
  if isinstance(content, bytes):
    path.write_bytes(content)
  elif content is not None:
    path.write_text(content)
  with pytest.raises(tasks.DataError, match=words):
    tasks.load(_ADULT, data_dir=str(adult))


def test_adult_without_a_folder_says_what_it_needs():
  with pytest.raises(tasks.DataError, match=r'adult\.data and adult\.test: give --data_dir'):
    tasks.load(_ADULT)


def test_fashions_parts_are_apart_and_pixels_are_from_0_to_1(tmp_path):
  generator = np.random.default_rng(0)
  arrays = {}
  for part, count in (('train', 200), ('test', 30)):
    arrays[f'x_{part}'] = generator.integers(256, size=(count, 28, 28), dtype=np.uint8)
    arrays[f'y_{part}'] = (np.arange(count) % 10).astype(np.uint8)
  np.savez(tmp_path / 'fashion_mnist.npz', **arrays)
  options = {'data_dir': str(tmp_path), 'seed': 2, 'num_clients': 5}
  test = tasks.load(_FASHION, **options)
  tuning = tasks.load(_FASHION, part='tuning', **options)
  train = test.train.load_all()
  assert train['x'].max() == 1
  assert train['x'].min() == 0
  assert len(test.train.client_ids) == 5
  images = arrays['x_train'].reshape(200, -1) / np.float32(255)
  together = np.concatenate([train['x'], tuning.validation['x']])
  np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(images, axis=0))
  flat = arrays['x_test'].reshape(30, -1) / np.float32(255)
  np.testing.assert_array_equal(test.validation['x'], flat)
