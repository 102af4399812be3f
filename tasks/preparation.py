"""Prepares raw inputs or texts for a model, and converts class numbers to labels or texts.

The module needs only NumPy. An exported model includes it, to prepare inputs as in training.

    prepare = Preparation.load('preparation.json')
    labels = prepare.labels(model.predict(prepare(rows)))
"""

import dataclasses
import functools
import itertools
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Texts: TypeAlias = Sequence[bytes] | np.ndarray  # n texts, as bytes.
_ESCAPE = 'surrogateescape'  # Words are bytes; those that are not UTF-8 survive a round trip.


@dataclasses.dataclass(frozen=True)
class _Saved:
  """A base class of the preparations, which a JSON file can store."""

  def save(self, path: str) -> None:
    """Writes the object to a JSON file, which `Preparation.load` reads."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(dataclasses.asdict(self), file, indent=1)


@dataclasses.dataclass(frozen=True)
class Column:
  """An input column of a table, which has numbers or texts.

  Attributes:
    name: The column's name.
    categories: The column's different texts; each becomes a 0/1 input. None if it has numbers.
    fill: What an empty cell is taken for, a number or a category. None if it is refused.
    ignores_unseen: Whether a text that is no category makes all inputs of the column 0, and is not
      refused.
  """

  name: str
  categories: tuple[str, ...] | None = None
  fill: float | str | None = None
  ignores_unseen: bool = False


@dataclasses.dataclass(frozen=True)
class Preparation(_Saved):
  """The preparation of raw inputs for a model.

  Attributes:
    columns: The columns that a table must have, in the order of the inputs; None for arrays.
    mean: A number, or one for each input, that is subtracted from the inputs, or None for 0.
    deviation: A number, or one for each input, by which the inputs are then divided, or None for 1.
    classes: The label of each class number; None if targets are numbers.
    shape: The shape of an input, to which rows are reshaped. None if they have it already.
    threshold: For a model with one output for two classes: an output above it means the second
      class. It is 0.5 for probabilities and 0 for logits. None if each class has an output.
    is_numbers: Whether predictions are numbers, as in a regression, and not scores.
    picture: Height, width and channels of a picture, for which the inputs must be pixels
      [n, height, width, channels]. None if inputs are no pictures.
    output: What the exported model predicts: 'logits', 'probabilities' or 'numbers'. None before
      the export.
  """

  columns: tuple[Column, ...] | None = None
  mean: float | tuple[float, ...] | None = None
  deviation: float | tuple[float, ...] | None = None
  classes: tuple[Any, ...] | None = None
  shape: tuple[int, ...] | None = None
  threshold: float | None = None
  is_numbers: bool = False
  picture: tuple[int, int, int] | None = None
  output: str | None = None

  def __call__(self, rows: Any) -> np.ndarray:
    """Converts raw inputs to the model's inputs.

    Args:
      rows: A table: column name -> n values (a mapping or a pandas DataFrame; further columns are
        ignored). Without `columns`, an array [n, ...].

    Returns:
      float32 [n, inputs]. Without `columns`, an array like the given one, float32 if it is
      standardised.

    Raises:
      ValueError: If a column is missing, a number is not finite, a category is unknown, the array
        cannot be divided into inputs of the `shape`, or pictures have another size.
    """
    x = np.asarray(rows) if self.columns is None else matrix(self.columns, rows)
    if self.picture is not None and x.shape[1:] != self.picture:
      height, width, channels = self.picture
      raise ValueError(
        f'pictures have shape {list(x.shape)}: give pixels [n, {height}, {width}, {channels}]'
      )
    if self.shape is not None:
      x = x.reshape(-1, *self.shape)
    x = standardised(x, self.mean, self.deviation)
    return x if self.columns is None else x.astype(np.float32, copy=False)

  def labels(self, predictions: Any) -> np.ndarray:
    """Returns the labels of predicted scores [..., classes], or of class numbers [...].

    Two classes may have one score [..., 1], that of the second class; `threshold` decides. If
    targets are numbers, as in a regression, predictions are returned unchanged.

    Raises:
      ValueError: If scores have one number for two classes and there is no threshold.
    """
    numbers = np.asarray(predictions)
    if self.is_numbers:
      return numbers
    if numbers.dtype.kind == 'f' and numbers.shape[-1:] == (1,):
      if self.threshold is None:
        raise ValueError(
          'the scores have one number for two classes, and no threshold is recorded: set it, '
          'dataclasses.replace(prepare, threshold=0.5) for probabilities and 0.0 for scores'
        )
      numbers = (numbers[..., 0] > self.threshold).astype(int)
    elif numbers.dtype.kind == 'f':
      numbers = numbers.argmax(-1)
    return numbers if self.classes is None else np.asarray(self.classes)[numbers]

  def probabilities(self, predictions: Any) -> np.ndarray:
    """Returns the probabilities of the classes, in the order of `classes`.

    Args:
      predictions: What the exported model predicts, [..., classes], or [..., 1] for two classes.

    Returns:
      float [..., classes]. One score for two classes gives the probabilities of both.

    Raises:
      ValueError: If predictions are numbers, or `output` does not say what they are.
    """
    scores = np.asarray(predictions)
    is_single = scores.shape[-1:] == (1,)
    _check_output(self.output, self.is_numbers)
    if self.output == 'logits' and self.classes is None:
      raise ValueError(
        'there are no classes, so that the meaning of the logits is not known: a sigmoid is for'
        ' several labels of an example, a softmax for one'
      )
    if self.output == 'logits':
      scores = _sigmoid(scores) if is_single else _softmax(scores)
    if is_single and self.classes is not None:
      scores = np.concatenate([1 - scores, scores], -1)
    return scores

  @staticmethod
  def load(path: str) -> 'Preparation | TextPreparation':
    """Reads a `Preparation` or a `TextPreparation` from a file that its `save` wrote."""
    with open(path, encoding='utf-8') as file:
      values = json.load(file, object_hook=_with_tuples)
    if values.get('columns') is not None:
      values['columns'] = tuple(Column(**column) for column in values['columns'])
    return TextPreparation(**values) if 'kind' in values else Preparation(**values)


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
  return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _check_output(output: str | None, is_numbers: bool) -> None:
  """Raises ValueError if predictions are no scores, or nothing says which."""
  if is_numbers or output == 'numbers':
    raise ValueError('predictions are numbers, which have no probabilities: use them as they are')
  if output is None:
    raise ValueError(
      'it is not recorded what the model predicts: set it, dataclasses.replace(prepare,'
      " output='logits') or 'probabilities', or export the model again"
    )


def _sigmoid(scores: np.ndarray) -> np.ndarray:
  with np.errstate(over='ignore'):  # 1 / (1 + inf) is 0, as it should be.
    return 1 / (1 + np.exp(-scores))


def _softmax(scores: np.ndarray) -> np.ndarray:
  powers = np.exp(scores - scores.max(-1, keepdims=True))
  return powers / powers.sum(-1, keepdims=True)


def standardised(x: np.ndarray, mean: Any, deviation: Any) -> np.ndarray:
  """Returns (x - mean) / deviation in float32. None leaves a part out; two leave x unchanged."""
  if mean is None and deviation is None:
    return x
  # Large integers, such as times, need float64 until the mean is subtracted.
  x = x.astype(np.promote_types(x.dtype, np.float32))
  if mean is not None:
    x = x - np.asarray(mean, x.dtype)
  if deviation is not None:
    x = x / np.asarray(deviation, x.dtype)
  return x.astype(np.float32, copy=False)


def refusal(name: str, values: np.ndarray, row: Any, fix: str) -> str:
  """Returns a message that a cell of a column is refused."""
  cell = values[row]
  if isinstance(cell, (str, np.number)):  # Without the names of NumPy's types.
    cell = cell.item() if isinstance(cell, np.generic) else cell
  return f'the column {name!r} has {cell!r:.40} in row {row} (rows count from 0): {fix}'


def matrix(columns: Sequence[Column], table: Any) -> np.ndarray:
  """Returns a table's inputs, float64 [n, inputs]; see `Preparation.__call__`."""
  names = {_tidy(str(name)): name for name in table}
  names.update({str(name): name for name in table})
  parts = []
  for column in columns:
    if column.name not in names:
      raise ValueError(f'there is no column {column.name!r}; the inputs need it')
    values = np.asarray(table[names[column.name]])
    parts.append(_numbers(column, values) if column.categories is None else _codes(column, values))
  return np.concatenate(parts, 1)


def _numbers(column: Column, values: np.ndarray) -> np.ndarray:
  """Returns float64 [n, 1] of a column of numbers, with its gaps filled."""
  cells = values
  if values.dtype.kind == 'O':
    cells = np.array([np.nan if _is_gap(value) else value for value in values], object)
  try:
    numbers = cells.astype(np.float64)
  except (TypeError, ValueError):
    raise ValueError(f'the column {column.name!r} has values that are no numbers') from None
  if column.fill is not None:
    numbers = np.where(np.isnan(numbers), column.fill, numbers)
  with np.errstate(over='ignore'):  # An overflow gives inf, which is refused.
    is_known = np.isfinite(numbers.astype(np.float32))
  if not is_known.all():
    fix = 'fill it in or leave the row out'
    raise ValueError(refusal(column.name, values, int(np.argmin(is_known)), fix))
  return numbers[:, np.newaxis]


def _codes(column: Column, values: np.ndarray) -> np.ndarray:
  """Returns float32 [n, categories]: 1 for the category of a row."""
  categories = column.categories or ()
  positions = {text: i for i, text in enumerate(categories)}
  codes = np.array([_position(value, column.fill, positions) for value in values], int)
  is_known = codes >= 0
  if not is_known.all() and not column.ignores_unseen:
    fix = 'it must be a text that training has seen'
    raise ValueError(refusal(column.name, values, int(np.argmin(is_known)), fix))
  part = np.zeros([len(codes), len(categories)], np.float32)
  part[np.flatnonzero(is_known), codes[is_known]] = 1
  return part


def _position(value: Any, fill: Any, positions: Mapping[str, int]) -> int:
  """Returns the number of a cell's category, or -1 if it is none."""
  if isinstance(value, str):
    if value in positions:
      return positions[value]
    tidy = _tidy(value)
    if tidy or fill is None:
      return positions.get(tidy, -1)
    value = None
  return positions.get(fill, -1) if _is_gap(value) and fill is not None else -1


def _is_gap(value: Any) -> bool:
  """Returns whether a cell is empty: None, nan, or what pandas takes for it."""
  return not isinstance(value, str) and str(value) in ('None', 'nan', 'NaT', '<NA>')


def _tidy(text: str) -> str:
  """Returns a text as the training table's are read: composed (NFC), without blanks around it."""
  return unicodedata.normalize('NFC', text).strip()


@dataclasses.dataclass(frozen=True)
class TextPreparation(_Saved):
  """The preparation of texts for a model.

  Attributes:
    kind: 'characters' converts texts to sequences of character numbers, 'words' sentences to
      sequences of word numbers, and 'bags' sentences with titles to word counts.
    vocabulary: The characters or words, in the order of their numbers.
    steps: Length of a sequence; None for bags.
    classes: For bags, the tags in the order of the outputs. None if these are the vocabulary.
    output: As in `Preparation`.
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
    numbers, others = self._numbers, len(self.vocabulary)
    pairs = zip(*(_column(texts, name) for name in ('tokens', 'title')), strict=True)
    found = [[numbers.get(w, others) for w in (*a.split(), *b.split())] for a, b in pairs]
    return _counts(found, others + 1, np.uint8)  # The last column counts other words.

  def targets(self, texts: Any) -> np.ndarray:
    """Returns the targets of the model for the same texts.

    Returns:
      int32 with the shape of the inputs: the next number of each sequence, or 0 for padding. For
      bags, float32 [n, classes] of 0 and 1, from the column tags (separated by '|').
    """
    if self.kind != 'bags':
      return self._sequences(texts)[:, 1:]
    numbers = self._tag_numbers
    found = [[numbers.get(t, -1) for t in tags.split(b'|')] for tags in _column(texts, 'tags')]
    return _counts(found, len(numbers), np.float32)

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
      ids = [begin, *(self._numbers.get(w, unknown - 1) + 1 for w in words)]
      ids = [*ids, end] if len(ids) <= self.steps else ids
      row[: len(ids)] = ids
    return sequences

  @functools.cached_property
  def _numbers(self) -> dict[bytes, int]:
    return {word.encode(errors=_ESCAPE): i for i, word in enumerate(self.vocabulary)}

  @functools.cached_property
  def _tag_numbers(self) -> dict[bytes, int]:
    return {tag.encode(errors=_ESCAPE): i for i, tag in enumerate(self.classes or ())}


def as_text(words: Sequence[bytes]) -> tuple[str, ...]:
  """Decodes words or tags, as bytes, to the strings that `TextPreparation` takes."""
  return tuple(word.decode(errors=_ESCAPE) for word in words)


def character_sequences(
  texts: Texts, vocabulary: bytes, steps: int
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


def _counts(found: list[list[int]], width: int, dtype: Any) -> np.ndarray:
  """Returns counts [lists, width], up to 255, of the column numbers in each list of `found`."""
  lengths = [len(row) for row in found]
  columns = np.fromiter(itertools.chain.from_iterable(found), np.int64, sum(lengths))
  flat = np.repeat(np.arange(len(found)) * width, lengths) + columns
  cells, times = np.unique(flat[columns >= 0], return_counts=True)
  counts = np.zeros(len(found) * width, dtype)  # Most of it is never written.
  counts[cells] = np.minimum(times, np.iinfo(np.uint8).max)
  return counts.reshape(len(found), width)


def _bytes(texts: Any) -> list[bytes]:
  if isinstance(texts, (str, bytes)):
    raise TypeError(f'expected several texts, found one: give [{texts!r:.40}]')
  if hasattr(texts, 'columns'):  # Iterating over a table gives its columns' names.
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
