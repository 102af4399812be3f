"""Raw inputs to a model's, and labels back."""

import inspect
import sys
import typing

import numpy as np
import pytest

from tff_adaptive_tasks import preparation, text_preparation
from tff_adaptive_tasks.data import columns
from tff_adaptive_tasks.text_preparation import TextPreparation

TABLE = {
  'age': [3, 5, 4],
  'colour': ['red', 'blue', 'red'],
  'weight': [0.5, 1.5, 2.5],
  'is_old': [True, False, True],
}


def prepared(names=('age', 'colour', 'is_old')):
  return preparation.Preparation(columns.columns_of(TABLE, names))


def test_a_table_becomes_a_matrix_in_the_order_of_the_columns():
  x = prepared()(TABLE)
  assert x.dtype == np.float32
  np.testing.assert_array_equal(x, [[3, 0, 1, 1], [5, 1, 0, 0], [4, 0, 1, 1]])  # blue, red
  with pytest.raises(ValueError, match="there is no column 'colour'"):
    prepared()({'age': [7], 'new': ['?']})


def test_standardising_comes_after_the_categories_by_one_number_or_one_each():
  of_two = columns.columns_of(TABLE, ['age', 'colour'])
  prepare = preparation.Preparation(of_two, mean=(4.0, 0.5, 0.5), deviation=(2.0, 1.0, 0.5))
  np.testing.assert_array_equal(prepare(TABLE), [[-0.5, -0.5, 1], [0.5, 0.5, -1], [0, -0.5, 1]])
  x = np.array([[0, 255]], np.uint8)
  scaled = preparation.Preparation(deviation=255)(x)
  assert scaled.dtype == np.float32
  np.testing.assert_array_equal(scaled, [[0, 1]])
  np.testing.assert_array_equal(preparation.Preparation(mean=(1.0, 5.0))(x), [[-1, 250]])
  assert preparation.Preparation()(x).dtype == np.uint8


@pytest.mark.parametrize(('given', 'rows'), [((3, 4, 6), 3), ((3, 24), 3), ((4, 6), 1), ((24,), 1)])
def test_rows_are_brought_into_the_shape(given, rows):
  x = np.arange(np.prod(given)).reshape(given)
  shaped = preparation.Preparation(shape=(4, 6, 1))(x)
  assert shaped.shape == (rows, 4, 6, 1)
  np.testing.assert_array_equal(shaped.ravel(), x.ravel())
  with pytest.raises(ValueError, match=r'cannot reshape array of size 25 into shape \(4,6,1\)'):
    preparation.Preparation(shape=(4, 6, 1))(np.zeros(25))


def test_labels_come_back_from_scores():
  prepare = preparation.Preparation(classes=('no', 'yes'))
  assert prepare.labels([[0.1, 0.2], [3.0, -1.0]]).tolist() == ['yes', 'no']
  assert prepare.labels([1, 0]).tolist() == ['yes', 'no']
  assert preparation.Preparation().labels([[0.1, 0.2]]).tolist() == [1]


def test_numbers_are_their_own_labels():
  numbers = np.float32([[0.5, 2.0], [3.0, -1.0]])  # Of a regression.
  prepare = preparation.Preparation(is_numbers=True)
  for predictions in (numbers, numbers[:, :1], numbers[:, 0]):
    np.testing.assert_array_equal(prepare.labels(predictions), predictions)


def test_labels_come_back_from_one_score_by_the_threshold():
  for threshold in (0.5, 0.0):
    prepare = preparation.Preparation(classes=('no', 'yes'), threshold=threshold)
    scores = threshold + np.float32([[0.3], [-0.3], [0.0]])
    assert prepare.labels(scores).tolist() == ['yes', 'no', 'no']
    assert prepare.labels(scores[np.newaxis]).tolist() == [['yes', 'no', 'no']]
    assert prepare.labels([1, 0]).tolist() == ['yes', 'no']
  with pytest.raises(ValueError, match='no threshold is recorded: set it'):
    preparation.Preparation(classes=('no', 'yes')).labels(scores)


def test_a_file_holds_all_of_it(tmp_path):
  path = str(tmp_path / 'p.json')
  for prepare in (
    preparation.Preparation(prepared().columns, (0.1,) * 4, (2.0,) * 4, ('a', 'b')),
    preparation.Preparation(mean=0.5, classes=(3, 7), threshold=0.5),
    TextPreparation('bags', ('the',), None, text_preparation.as_text([b'\xfe', b'caf\xc3\xa9'])),
  ):
    prepare.save(path)
    assert preparation.Preparation.load(path) == prepare


@pytest.mark.filterwarnings('error:overflow')
@pytest.mark.parametrize(
  'change, message',
  [
    ({'age': [3, 1e39, 4]}, "the column 'age' has .*1e.39.* in row 1"),
    ({'age': [3, np.nan, 4]}, "the column 'age' has nan in row 1 .*fill it in"),
    ({'age': ['3', 'x', '4']}, "the column 'age' has values that are no numbers"),
    ({'colour': ['red', 'green', 'red']}, "'colour' has 'green' in row 1 .*that training has seen"),
    ({'colour': ['red', 'red', None]}, "'colour' has None in row 2"),
  ],
)
def test_values_that_cannot_be_used_are_named(change, message):
  with pytest.raises(ValueError, match=message):
    prepared()({**TABLE, **change})


@pytest.mark.parametrize('module', [preparation, text_preparation])
def test_what_an_export_takes_along_needs_numpy_alone(module):
  lines = inspect.getsource(module).splitlines()
  modules = {line.split()[1].split('.')[0] for line in lines if line.startswith(('import', 'from'))}
  assert modules <= {'numpy', *sys.stdlib_module_names}


class Predicted(typing.NamedTuple):
  output: str
  classes: tuple[str, ...] | None
  scores: list
  probabilities: list


@pytest.mark.parametrize(
  'predicted',
  [
    Predicted(
      output='logits',
      classes=('a', 'b', 'c'),
      scores=[[0.0, np.log(3), 0.0]],
      probabilities=[[0.2, 0.6, 0.2]],
    ),
    Predicted(
      output='probabilities', classes=('a', 'b'), scores=[[0.3, 0.7]], probabilities=[[0.3, 0.7]]
    ),
    Predicted(
      output='logits',
      classes=('a', 'b'),
      scores=[[np.log(4)], [-np.log(4)]],
      probabilities=[[0.2, 0.8], [0.8, 0.2]],
    ),
    Predicted(
      output='probabilities', classes=('a', 'b'), scores=[[0.25]], probabilities=[[0.75, 0.25]]
    ),
    Predicted(
      output='probabilities', classes=None, scores=[[0.2, 0.9]], probabilities=[[0.2, 0.9]]
    ),  # Several labels of an example.
    Predicted(
      output='logits',
      classes=('a', 'b'),
      scores=[[1000.0], [-1000.0]],
      probabilities=[[0.0, 1.0], [1.0, 0.0]],
    ),
    Predicted(
      output='logits', classes=('a', 'b'), scores=[[1000.0, 0.0]], probabilities=[[1.0, 0.0]]
    ),
  ],
)
def test_probabilities_are_those_of_the_classes(predicted):
  prepare = preparation.Preparation(classes=predicted.classes, output=predicted.output)
  probabilities = prepare.probabilities(predicted.scores)
  np.testing.assert_allclose(probabilities, predicted.probabilities, rtol=1e-12, atol=1e-12)


def test_what_has_no_probabilities_says_so():
  scores = [[1.0, 2.0]]
  for prepare, words in (
    (preparation.Preparation(is_numbers=True, output='numbers'), 'predictions are numbers'),
    (preparation.Preparation(classes=('a', 'b')), 'not recorded what the model predicts'),
    (preparation.Preparation(output='logits'), 'there are no classes'),
  ):
    with pytest.raises(ValueError, match=words):
      prepare.probabilities(scores)


def test_pictures_of_another_size_are_refused(tmp_path):
  prepare = preparation.Preparation(deviation=255.0, picture=(4, 6, 3))
  prepare.save(str(tmp_path / 'preparation.json'))
  prepare = preparation.Preparation.load(str(tmp_path / 'preparation.json'))
  assert prepare.picture == (4, 6, 3)
  assert prepare(np.full([2, 4, 6, 3], 255, np.uint8)).max() == 1.0
  for shape in ([2, 6, 4, 3], [4, 6, 3]):
    with pytest.raises(ValueError, match=r'give pixels \[n, 4, 6, 3\]'):
      prepare(np.zeros(shape, np.uint8))


def test_several_labels_have_a_probability_each():
  prepare = preparation.Preparation(output='logits', threshold=0.0, targets=('late', 'poor'))
  scores = np.array([[0.0, np.log(3)], [-np.log(3), 0.0]])
  np.testing.assert_allclose(prepare.probabilities(scores), [[0.5, 0.75], [0.25, 0.5]])
  assert prepare.labels(scores).tolist() == [[0, 1], [0, 0]]
