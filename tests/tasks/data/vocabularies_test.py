"""Files of counts: the commonest come first, anything else is one line that names the file."""

import json

import pytest

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import vocabularies


def test_words_are_taken_in_the_files_order(tmp_path):
  path = tmp_path / 'words'
  path.write_bytes(b'the 5\n\xff\xfe 3\nthe 2\nlast 1\nbroken\n')
  # Any bytes are a word, and a word counts once.
  assert vocabularies.load_words(str(path), 2) == [b'the', b'\xff\xfe']
  assert vocabularies.load_words(str(path), 3) == [b'the', b'\xff\xfe', b'last']


@pytest.mark.parametrize(
  'content, named',
  [
    (b'', 'it is empty'),
    (b'the 5\nbroken\n', "line 2, b'broken"),
    (b'the -5\n', 'line 1'),
    (b'the 5 6\n', 'line 1'),
  ],
)
def test_bad_words_are_named(tmp_path, content, named):
  path = tmp_path / 'words'
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=named) as e:
    vocabularies.load_words(str(path), 3)
  assert len(str(e.value)) < 400


def test_tags_are_ranked_by_count(tmp_path):
  path = tmp_path / 'tags'
  path.write_text(json.dumps({'r': 1, 'c': 3, 'b': 3, 'é': 10**30}))
  assert vocabularies.load_tags(str(path), 3) == ['é'.encode(), b'c', b'b']


@pytest.mark.parametrize(
  'content, named',
  [
    (b'[1]', 'is no JSON of the form'),
    (b'{"a"', 'delimiter: line 1'),
    (b'{"a": "x"}', "the count of 'a' is x"),
    (b'{"a": true}', "the count of 'a' is True"),
    (b'{"a": 1.5}', "the count of 'a' is 1.5"),
    (b'{"\\ud800": 1}', 'surrogates not allowed'),
    (b'\xff', "tags cannot be read .'utf-8' codec"),
    (b'{}', 'one tag at least'),
    (b'[' * 200_000, 'recursion'),
  ],
)
def test_bad_tags_are_named(tmp_path, content, named):
  path = tmp_path / 'tags'
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=named) as e:
    vocabularies.load_tags(str(path), 2)
  assert str(path) in str(e.value)
  assert len(str(e.value)) < 400


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
  for load in (vocabularies.load_words, vocabularies.load_tags):
    with pytest.raises(errors.DataError, match=r'none cannot be read .*No such file'):
      load(str(tmp_path / 'none'), 2)
