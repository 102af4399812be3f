"""Texts to numbers and back; what the tasks make of texts is compared with TFF in their tests."""

import numpy as np
import pytest

from tff_adaptive_tasks import text_preparation
from tff_adaptive_tasks.text_preparation import Preparation

WORDS = Preparation('words', ('the', 'a'), 4)


@pytest.mark.parametrize(
  'prepare',
  [
    Preparation('characters', tuple('ab\n'), 5),
    Preparation('words', text_preparation.as_text([b'caf\xc3\xa9', b'\xff']), 4),
    Preparation('bags', ('the',), None, text_preparation.as_text([b'\xfe', b'c++'])),
  ],
)
def test_a_file_holds_all_of_it(prepare, tmp_path):
  prepare.save(str(tmp_path / 'p.json'))
  assert Preparation.load(str(tmp_path / 'p.json')) == prepare


def test_numbers_come_back_as_text():
  np.testing.assert_array_equal(
    WORDS.labels(WORDS.targets(['a zebra', b'the the the the the'])),
    [['a', '<unknown>', '<end>', ''], ['the'] * 4],
  )
  scores = np.eye(6, dtype=np.float32)[[2, 3, 4]]
  np.testing.assert_array_equal(WORDS.labels(scores), ['a', '<unknown>', '<begin>'])
  tags = Preparation('bags', ('the',), None, ('r', 'go'))
  np.testing.assert_array_equal(tags.labels(np.array([[0.1, 0.2], [3.0, 1.0]])), ['go', 'r'])


def test_words_that_are_no_utf8_are_known_again():
  prepare = Preparation('words', text_preparation.as_text([b'\xff', b'a']), 2)
  np.testing.assert_array_equal(prepare([b'\xff a']), [[4, 1]])
  np.testing.assert_array_equal(prepare.targets([b'\xff a']), [[1, 2]])


def test_one_text_in_place_of_several_is_refused():
  with pytest.raises(TypeError, match=r"found one: give \['the a'\]"):
    WORDS('the a')


@pytest.mark.parametrize('bad', [5, None, np.nan, np.array(['a'], object)])
def test_what_is_no_text_is_named(bad):
  with pytest.raises(TypeError, match=r'text 1 is .* give texts, str or bytes'):
    WORDS(['the', bad])


def test_a_table_in_place_of_texts_and_columns_that_do_not_fit_are_refused():
  pandas = pytest.importorskip('pandas')
  with pytest.raises(TypeError, match='found a table: give one of its columns'):
    WORDS(pandas.DataFrame({'tokens': ['the', 'a']}))
  bags = Preparation('bags', ('the',), None, ('r', 'go'))
  with pytest.raises(ValueError, match="there is no column 'title': found tokens"):
    bags({'tokens': ['the']})
  with pytest.raises(ValueError, match='argument 2 is shorter'):
    bags({'tokens': ['the', 'a'], 'title': ['a']})
  table = pandas.DataFrame({'tokens': ['the a'], 'title': ['the'], 'tags': ['go']})
  np.testing.assert_array_equal(bags(table), [[2, 1]])
  np.testing.assert_array_equal(bags.targets(table), [[0, 1]])
