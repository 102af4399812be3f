"""Texts to a model's inputs, and labels back; what tasks make of texts is in their tests."""

import numpy as np
import pytest

from tff_adaptive_tasks import preparation, text_preparation
from tff_adaptive_tasks.text_preparation import TextPreparation

WORDS = TextPreparation('words', ('the', 'a'), 4)


def test_numbers_come_back_as_text_and_words_that_are_no_utf8_are_known_again():
  np.testing.assert_array_equal(
    WORDS.labels(WORDS.targets(['a zebra', b'the the the the the'])),
    [['a', '<unknown>', '<end>', ''], ['the'] * 4],
  )
  scores = np.eye(6, dtype=np.float32)[[2, 3, 4]]
  np.testing.assert_array_equal(WORDS.labels(scores), ['a', '<unknown>', '<begin>'])
  tags = TextPreparation('bags', ('the',), None, ('r', 'go'))
  np.testing.assert_array_equal(tags.labels(np.array([[0.1, 0.2], [3.0, 1.0]])), ['go', 'r'])
  prepare = TextPreparation('words', text_preparation.as_text([b'\xff', b'a']), 2)  # No UTF-8.
  np.testing.assert_array_equal(prepare([b'\xff a', '\udcff a']), [[4, 1]] * 2)
  np.testing.assert_array_equal(prepare.targets([b'\xff a']), [[1, 2]])


@pytest.mark.parametrize('bad', [5, None, np.nan, np.array(['a'], object)])
def test_what_is_no_text_is_named(bad):
  with pytest.raises(TypeError, match=r'text 1 is .* give texts, str or bytes'):
    WORDS(['the', bad])


def test_a_text_or_a_table_in_place_of_texts_and_columns_that_do_not_fit_are_refused():
  with pytest.raises(TypeError, match=r"found one: give \['the a'\]"):
    WORDS('the a')
  pandas = pytest.importorskip('pandas')
  with pytest.raises(TypeError, match='found a table: give one of its columns'):
    WORDS(pandas.DataFrame({'tokens': ['the', 'a']}))
  bags = TextPreparation('bags', ('the',), None, ('r', 'go'))
  with pytest.raises(ValueError, match="there is no column 'title': found tokens"):
    bags({'tokens': ['the']})
  with pytest.raises(ValueError, match='argument 2 is shorter'):
    bags({'tokens': ['the', 'a'], 'title': ['a']})
  table = pandas.DataFrame({'tokens': ['the a'], 'title': ['the'], 'tags': ['go']})
  np.testing.assert_array_equal(bags(table), [[2, 1]])
  np.testing.assert_array_equal(bags.targets(table), [[0, 1]])


def test_probabilities_of_words_and_of_tags():
  words = TextPreparation('words', ('a', 'b'), 3, output='logits')
  np.testing.assert_allclose(words.probabilities([[0.0, np.log(3)]]), [[0.25, 0.75]])
  tags = TextPreparation('bags', ('a',), classes=('x', 'y'), output='logits')
  np.testing.assert_allclose(tags.probabilities([[0.0, np.log(3)]]), [[0.5, 0.75]])


def test_an_export_of_texts_reads_itself(tmp_path):
  path = str(tmp_path / 'preparation.json')
  WORDS.save(path)
  assert text_preparation.Preparation.load(path) == WORDS
  assert preparation.Preparation.load(path) == WORDS
