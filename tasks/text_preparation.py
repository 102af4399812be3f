"""Prepares texts for a model, and converts numbers to characters, words or tags.

The module needs only NumPy. The export of a model of texts has it as preparation.py, where
`Preparation` is the class below.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

_ESCAPE = 'surrogateescape'  # Words are bytes; those that are not UTF-8 survive a round trip.


@dataclasses.dataclass(frozen=True)
class TextPreparation:
  """The preparation of texts for a model.

  Attributes:
    kind: 'characters' converts texts to sequences of character numbers, 'words' sentences to
      sequences of word numbers, and 'bags' sentences with titles to word counts.
    vocabulary: The characters or words, in the order of their numbers.
    steps: Length of a sequence; None for bags.
    classes: For bags, the tags in the order of the outputs. None if these are the vocabulary.
    output: What the exported model predicts: 'logits' or 'probabilities'. None before the export.
  """

  kind: str
  vocabulary: tuple[str, ...]
  steps: int | None = None
  classes: tuple[str, ...] | None = None
  output: str | None = None

  def __call__(self, texts: Any) -> np.ndarray:
    """Converts texts to the model's inputs.

    Args:
      texts: n texts (str or bytes) with words separated by single spaces. For bags, a mapping with
        the columns tokens and title.

    Returns:
      For words, int32 [n, steps]. For characters, int32 [m, steps], m >= n: a long text becomes
      several sequences. For bags, uint8 [n, words + 1], where the last column counts other words.

    Raises:
      TypeError: If a text is not str or bytes, or a table is given instead of texts.
      ValueError: If a column of bags is missing, or the columns have different lengths.
    """
    if self.kind != 'bags':
      return self._sequences(texts)[:, :-1]
    others = len(self.vocabulary)
    tokens = _column(texts, 'tokens')
    titles = _column(texts, 'title')
    bags = []
    for sentence, title in zip(tokens, titles, strict=True):
      words = (*sentence.split(), *title.split())
      bags.append([self._numbers.get(word, others) for word in words])
    return _counts(bags, others + 1, np.uint8)  # The last column counts other words.

  def targets(self, texts: Any) -> np.ndarray:
    """Returns the targets of the model for the same texts.

    Returns:
      int32 with the shape of the inputs: the next number of each sequence, or 0 for padding. For
      bags, float32 [n, classes] of 0 and 1, from the column tags (separated by '|').
    """
    if self.kind != 'bags':
      return self._sequences(texts)[:, 1:]
    numbers = self._tag_numbers
    bags = []
    for tags in _column(texts, 'tags'):
      bags.append([numbers.get(tag, -1) for tag in tags.split(b'|')])
    return _counts(bags, len(numbers), np.float32)

  def pairs(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the inputs (see `__call__`) and the targets (see `targets`) of texts."""
    if self.kind == 'bags':
      return self(texts), self.targets(texts)
    sequences = self._sequences(texts)
    return sequences[:, :-1], sequences[:, 1:]

  def labels(self, predictions: Any) -> np.ndarray:
    """Returns the characters, words or tags that scores [..., classes] or numbers [...] mean."""
    numbers = np.asarray(predictions)
    if numbers.dtype.kind == 'f':
      numbers = numbers.argmax(-1)
    special = ('', '<unknown>', '<begin>', '<end>')
    known = self.classes or (special[0], *self.vocabulary, *special[1:])
    return np.asarray(known, object)[numbers]

  def probabilities(self, predictions: Any) -> np.ndarray:
    """Returns the probabilities of the next character or word, or of each tag, [..., classes].

    Raises:
      ValueError: If `output` does not say what predictions are.
    """
    scores = np.asarray(predictions)
    _check_output(self.output, False)
    if self.output == 'probabilities':
      return scores
    return _sigmoid(scores) if self.kind == 'bags' else _softmax(scores)

  def save(self, path: str) -> None:
    """Writes the object to a JSON file, which `Preparation.load` reads."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(dataclasses.asdict(self), file, indent=1)

  @staticmethod
  def load(path: str) -> 'TextPreparation':
    """Reads the object from a file that its `save` wrote."""
    with open(path, encoding='utf-8') as file:
      values = json.load(file)
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return TextPreparation(**{**values, **lists})

  def _sequences(self, texts: Any) -> np.ndarray:
    assert self.steps is not None
    if self.kind == 'characters':
      vocabulary = ''.join(self.vocabulary).encode('latin-1')
      return character_sequences(_bytes(texts), vocabulary, self.steps)[0].astype(np.int32)
    # A sentence is cut to `steps` words. It gets a token for its beginning and, where there is
    # room, another one for its end. Then it is padded with 0.
    unknown, begin, end = (len(self.vocabulary) + i for i in (1, 2, 3))
    sentences = _bytes(texts)
    sequences = np.zeros([len(sentences), self.steps + 1], np.int32)
    for row, sentence in zip(sequences, sentences):
      words = sentence.split(b' ')[: self.steps]
      numbers = [begin, *(self._numbers.get(word, unknown - 1) + 1 for word in words)]
      if len(numbers) <= self.steps:
        numbers.append(end)
      row[: len(numbers)] = numbers
    return sequences

  @functools.cached_property
  def _numbers(self) -> dict[bytes, int]:
    return {word.encode(errors=_ESCAPE): i for i, word in enumerate(self.vocabulary)}

  @functools.cached_property
  def _tag_numbers(self) -> dict[bytes, int]:
    return {tag.encode(errors=_ESCAPE): i for i, tag in enumerate(self.classes or ())}


Preparation = TextPreparation


def as_text(words: Sequence[bytes]) -> tuple[str, ...]:
  """Decodes words or tags, as bytes, to the strings that `TextPreparation` takes."""
  return tuple(word.decode(errors=_ESCAPE) for word in words)


def character_sequences(
  texts: Sequence[bytes] | np.ndarray, vocabulary: bytes, steps: int
) -> tuple[np.ndarray, np.ndarray]:
  """Converts texts to padded sequences of `steps` + 1 characters, with begin and end tokens.

  The characters of `vocabulary` are numbered from 1; 0 is padding. The next three numbers stand for
  any other character, the beginning of a text, and its end.

  Returns:
    uint8 [m, steps + 1], the sequences in order, and int64 [n], the number of sequences of each
    text.
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


def _counts(bags: list[list[int]], width: int, dtype: Any) -> np.ndarray:
  """Returns counts [bags, width], up to 255, of the column numbers in each bag."""
  lengths = [len(bag) for bag in bags]
  columns = np.fromiter(itertools.chain.from_iterable(bags), np.int64, sum(lengths))
  flat = np.repeat(np.arange(len(bags)) * width, lengths) + columns
  cells, times = np.unique(flat[columns >= 0], return_counts=True)
  counts = np.zeros(len(bags) * width, dtype)  # Most of it is never written.
  counts[cells] = np.minimum(times, np.iinfo(np.uint8).max)
  return counts.reshape(len(bags), width)


def _bytes(texts: Any) -> list[bytes]:
  if isinstance(texts, (str, bytes)):
    raise TypeError(f'expected several texts, found one: give [{texts!r:.40}]')
  if hasattr(texts, 'columns'):  # Iterating over a table gives its columns' names.
    raise TypeError('expected texts, found a table: give one of its columns')
  encoded = []
  for i, text in enumerate(texts):
    if isinstance(text, str):
      text = text.encode(errors=_ESCAPE)
    if not isinstance(text, bytes):
      raise TypeError(f'text {i} is {text!r:.40} ({type(text).__name__}): give texts, str or bytes')
    encoded.append(text)
  return encoded


def _column(texts: Any, name: str) -> list[bytes]:
  if name not in texts:
    raise ValueError(f'there is no column {name!r}: found {", ".join(map(str, texts))}')
  return _bytes(texts[name])


# These three are in `preparation` too: an export has only one of the two modules.
def _check_output(output: str | None, is_numbers: bool) -> None:
  """Raises ValueError if predictions are no scores, or nothing says which."""
  if is_numbers or output == 'numbers':
    raise ValueError('predictions are numbers, which have no probabilities: use them as they are')
  if output is None:
    raise ValueError(
      'it is not recorded what the model predicts: set it, dataclasses.replace(prepare,'
      " output='logits') or 'probabilities', or export the model again"
    )


def _softmax(scores: np.ndarray) -> np.ndarray:
  powers = np.exp(scores - scores.max(-1, keepdims=True))
  return powers / powers.sum(-1, keepdims=True)


def _sigmoid(scores: np.ndarray) -> np.ndarray:
  with np.errstate(over='ignore'):  # 1 / (1 + inf) is 0, as it should be.
    return 1 / (1 + np.exp(-scores))
