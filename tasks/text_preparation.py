"""From raw text to the numbers that a model takes, and from class numbers back to text.

It needs NumPy alone and nothing of this project: an exported model of text takes this file along as
preparation.py, so that whoever predicts with it prepares texts as training did.

    prepare = Preparation.load('preparation.json')
    words = prepare.labels(model.predict(prepare(['how do i'])))
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Texts: TypeAlias = Sequence[bytes] | np.ndarray  # [n], of bytes.
_ESCAPE = 'surrogateescape'  # Vocabularies are bytes; what is no UTF-8 comes back as it was.


@dataclasses.dataclass(frozen=True)
class Preparation:
  """What is done to texts before a model sees them.

  Attributes:
    kind: 'characters': texts to sequences of the numbers of their bytes; 'words': sentences to
      sequences of the numbers of their words; 'bags': sentences with titles to word counts.
    vocabulary: The characters or words, in the order of their numbers.
    steps: Length of a sequence; None for bags.
    classes: Of bags the tags, in the order of the outputs; None: the classes are the vocabulary's.
  """

  kind: str
  vocabulary: tuple[str, ...]
  steps: int | None = None
  classes: tuple[str, ...] | None = None

  def __call__(self, texts: Any) -> np.ndarray:
    """Texts as the model takes them.

    Args:
      texts: n texts (str or bytes), of words separated by single spaces; for bags a mapping with
        the columns tokens and title.

    Returns:
      int32 [n, steps] of words; of characters [m, steps], m >= n: a longer text is several
      sequences, which follow each other; of bags uint8 [n, words + 1].

    Raises:
      TypeError: If one of them is not str or bytes, or a table is given where texts are wanted.
      ValueError: If a column of bags is missing, or they are not of one length.
    """
    if self.kind == 'bags':
      sentences, titles = (_column(texts, name) for name in ('tokens', 'title'))
      return count_words(sentences, titles, self._numbers())
    return self._sequences(texts)[:, :-1]

  def targets(self, texts: Any) -> np.ndarray:
    """What the model is to predict of the same texts.

    Returns:
      int32 like the inputs: the number that follows each, 0 where there is none; of bags, by the
      column tags (separated by '|'), float32 [n, classes] of 0 and 1.
    """
    if self.kind == 'bags':
      numbers = {tag.encode(errors=_ESCAPE): i for i, tag in enumerate(self.classes or ())}
      return mark_tags(_column(texts, 'tags'), numbers)
    return self._sequences(texts)[:, 1:]

  def labels(self, predictions: Any) -> np.ndarray:
    """The texts of predicted scores [..., classes], or of class numbers [...]."""
    numbers = np.asarray(predictions)
    if numbers.dtype.kind == 'f':
      numbers = numbers.argmax(-1)
    special = ('', '<unknown>', '<begin>', '<end>')
    known = self.classes or (special[0], *self.vocabulary, *special[1:])
    return np.asarray(known, object)[numbers]

  def save(self, path: str) -> None:
    """Writes a JSON file."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(dataclasses.asdict(self), file, indent=1)

  @classmethod
  def load(cls, path: str) -> 'Preparation':
    """Reads what `save` wrote."""
    with open(path, encoding='utf-8') as file:
      values = json.load(file)
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})

  def _sequences(self, texts: Any) -> np.ndarray:
    assert self.steps is not None
    if self.kind == 'words':
      return word_sequences(_bytes(texts), self._numbers(), self.steps)
    vocabulary = ''.join(self.vocabulary).encode('latin-1')
    return character_sequences(_bytes(texts), vocabulary, self.steps)[0].astype(np.int32)

  def _numbers(self) -> dict[bytes, int]:
    return {word.encode(errors=_ESCAPE): i for i, word in enumerate(self.vocabulary)}


def as_text(words: Sequence[bytes]) -> tuple[str, ...]:
  """Words or tags of a file as `Preparation` keeps them."""
  return tuple(word.decode(errors=_ESCAPE) for word in words)


def character_sequences(
  texts: Texts, vocabulary: bytes, steps: int
) -> tuple[np.ndarray, np.ndarray]:
  """Texts to padded sequences of the numbers of their bytes, between a beginning and an end.

  Characters are numbered from 1; then come all others, the beginning and the end.

  Returns:
    uint8 [m, steps + 1], the sequences in order, and int64 [n], how many each text gave.
  """
  unknown, begin, end = (len(vocabulary) + i for i in (1, 2, 3))
  numbers = np.full(256, unknown, np.uint8)
  numbers[np.frombuffer(vocabulary, np.uint8)] = np.arange(1, len(vocabulary) + 1)
  lengths = np.array([len(text) for text in texts], np.int64)
  counts = -(-(lengths + 2) // (steps + 1))
  starts = np.cumsum(counts * (steps + 1)) - counts * (steps + 1)
  tokens = np.zeros(int(counts.sum()) * (steps + 1), np.uint8)
  tokens[starts] = begin
  tokens[starts + 1 + lengths] = end
  # Character k of text i goes to starts[i] + 1 + k.
  shift = starts + 1 - (np.cumsum(lengths) - lengths)
  joined = np.frombuffer(b''.join(texts), np.uint8)
  tokens[np.arange(len(joined)) + np.repeat(shift, lengths)] = numbers[joined]
  return tokens.reshape(-1, steps + 1), counts


def word_sequences(sentences: Texts, words: Mapping[bytes, int], steps: int) -> np.ndarray:
  """Sentences to padded sequences of the numbers of their words.

  A sentence is cut to `steps` words, begins with a token of its own, ends with another one where
  there is room, and is padded with 0: int32 [n, steps + 1].
  """
  unknown, begin, end = (len(words) + i for i in (1, 2, 3))
  sequences = np.zeros([len(sentences), steps + 1], np.int32)
  for row, sentence in zip(sequences, sentences):
    ids = [begin, *(words.get(w, unknown - 1) + 1 for w in sentence.split(b' ')[:steps])]
    ids = [*ids, end] if len(ids) <= steps else ids
    row[: len(ids)] = ids
  return sequences


def count_words(sentences: Texts, titles: Texts, words: Mapping[bytes, int]) -> np.ndarray:
  """Sentences with their titles to word counts, uint8 [n, words + 1]; the last column is others."""
  others = len(words)
  texts = zip(sentences, titles, strict=True)
  found = [[words.get(w, others) for w in (*a.split(), *b.split())] for a, b in texts]
  return _counts(found, len(words) + 1, np.uint8)


def mark_tags(joined: Texts, tags: Mapping[bytes, int]) -> np.ndarray:
  """Tags separated by '|' to indicators, float32 [n, tags]; others are left out."""
  found = [[tags.get(t, -1) for t in each.split(b'|')] for each in joined]
  return _counts(found, len(tags), np.float32)


def _counts(found: list[list[int]], width: int, dtype: Any) -> np.ndarray:
  """How often each row of `found`, lists of columns, has each column from 0 on; at most 255."""
  lengths = [len(row) for row in found]
  columns = np.fromiter(itertools.chain.from_iterable(found), np.int64, sum(lengths))
  flat = np.repeat(np.arange(len(found)) * width, lengths) + columns
  cells, times = np.unique(flat[columns >= 0], return_counts=True)
  counts = np.zeros(len(found) * width, dtype)  # Hardly any of it is touched.
  counts[cells] = np.minimum(times, np.iinfo(np.uint8).max)
  return counts.reshape(len(found), width)


def _bytes(texts: Any) -> list[bytes]:
  if isinstance(texts, (str, bytes)):
    raise TypeError(f'expected several texts, found one: give [{texts!r:.40}]')
  if hasattr(texts, 'columns'):  # It would give the columns' names.
    raise TypeError('expected texts, found a table: give one of its columns')
  texts = [t.encode(errors=_ESCAPE) if isinstance(t, str) else t for t in texts]
  for i, text in enumerate(texts):
    if not isinstance(text, bytes):
      raise TypeError(f'text {i} is {text!r:.40} ({type(text).__name__}): give texts, str or bytes')
  return texts


def _column(texts: Any, name: str) -> list[bytes]:
  if name not in texts:
    raise ValueError(f'there is no column {name!r}: found {", ".join(map(str, texts))}')
  return _bytes(texts[name])
