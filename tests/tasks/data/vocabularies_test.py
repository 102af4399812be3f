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


def test_tags_are_ranked_by_count(tmp_path):
  path = tmp_path / 'tags'
  path.write_text(json.dumps({'r': 1, 'c': 3, 'b': 3, 'é': 10**30}))
  assert vocabularies.load_tags(str(path), 3) == ['é'.encode(), b'c', b'b']


WORDS, TAGS = vocabularies.load_words, vocabularies.load_tags


@pytest.mark.parametrize(
  'load, content, named',
  [
    (WORDS, b'', 'it is empty'),
    (WORDS, b'the 5\nbroken\n', "line 2, b'broken"),
    (WORDS, b'the -5\n', 'line 1'),
    (WORDS, b'the 5 6\n', 'line 1'),
    (TAGS, b'[1]', 'is no JSON of the form'),
    (TAGS, b'{}', 'one tag at least'),
    (TAGS, b'{"a": "x"}', "the count of 'a' is x"),
    (TAGS, b'{"a": true}', "the count of 'a' is True"),
    (TAGS, b'{"a": -1}', "the count of 'a' is -1"),
    (TAGS, b'{"\\ud800": 1}', 'surrogates not allowed'),
    (TAGS, b'[' * 200_000, 'recursion'),
  ],
)
def test_what_is_no_file_of_counts_is_named(tmp_path, load, content, named):
  path = tmp_path / 'counts'
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=f'{path} cannot be read .*{named}') as e:
    load(str(path), 3)
  assert len(str(e.value)) < 400
