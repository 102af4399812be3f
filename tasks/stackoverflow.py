"""Stack Overflow by user: next words and tags, as in "Adaptive Federated Optimization".

The data are TFF's (`tff.simulation.datasets.stackoverflow`); each example is a sentence. Words and
tags are ranked by the counts in TFF's files `datasets/stackoverflow.word_count` (a word and a count
on each line) and `datasets/stackoverflow.tag_count` (JSON).
"""

import collections
import functools
import itertools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import errors, task as task_lib, text_preparation
from tff_adaptive_tasks.data import files, tff_sqlite
from tff_adaptive_tasks.models import language, layers

STEPS = 20
_TOP = 5  # The number of highest tags in the recall.
_WORD_FILE = 'stackoverflow.word_count'
_TAG_FILE = 'stackoverflow.tag_count'


def load_words(
  data_dir: str | None = None,
  seed: int = 0,
  num_words: int = 10_000,
  num_validation: int = 10_000,
  padding: language.Padding = 'published',
  lstm: language.Lstm = 'tensorflow',
) -> task_lib.Task:
  """Loads the task of predicting the next word.

  Args:
    data_dir: The folder with `stackoverflow.sqlite` and `datasets/`; None downloads both.
    seed: The seed of the choice of test sentences for evaluation.
    num_words: Size of the vocabulary, without special tokens.
    num_validation: Number of test sentences to evaluate on, or all if there are fewer. They are
      those of the first test clients in a random order, as in the code of Reddi et al.
    padding: 'published' counts padded steps in the loss, as Reddi et al. (2021) do; 'tff' does not.
    lstm: 'tensorflow' or 'compiled'; this package's compiled LSTM is 1.4 times as fast on a CPU.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  words = _words(num_words, data_dir)
  prepared = text_preparation.TextPreparation('words', words, STEPS)
  return _load(
    data_dir,
    seed,
    num_validation,
    ('tokens',),
    lambda features: prepared.pairs(features['tokens']),
    name='stackoverflow_nwp',
    build_model=functools.partial(build_model, len(words), padding, lstm=lstm),
    metric='accuracy_without_out_of_vocab_or_end_of_sentence',
    client_weight=language.num_tokens,
    preparation=prepared,
  )


def load_tags(
  data_dir: str | None = None,
  seed: int = 0,
  num_words: int = 10_000,
  num_tags: int = 500,
  num_validation: int = 10_000,
) -> task_lib.Task:
  """Loads the task of predicting tags; for other arguments, and errors, see `load_words`.

  Args:
    num_tags: Number of tags that are predicted.
  """
  errors.check_range('num_tags', num_tags, 1, 1_000_000)
  words = _words(num_words, data_dir)
  tags = text_preparation.as_text(read_tags(_counts_file(_TAG_FILE, data_dir), num_tags))
  prepared = text_preparation.TextPreparation('bags', words, classes=tags)
  return _load(
    data_dir,
    seed,
    num_validation,
    ('tokens', 'title', 'tags'),
    prepared.pairs,
    name='stackoverflow_lr',
    build_model=functools.partial(build_tag_model, len(words), len(tags)),
    metric='recall_at_5',
    preparation=prepared,
  )


def _load(
  data_dir: str | None,
  seed: int,
  num_validation: int,
  names: Sequence[str],
  prepare: tff_sqlite.Preprocess,
  **task: Any,
) -> task_lib.Task:
  errors.check_range('num_validation', num_validation, 1, 100_000_000)
  return tff_sqlite.load_task(
    'stackoverflow.sqlite',
    data_dir,
    {n: tf.io.FixedLenFeature([], tf.string) for n in names},
    prepare,
    validation=lambda test: _first(test, num_validation, seed),
    **task,
  )


def _words(num_words: int, data_dir: str | None) -> tuple[str, ...]:
  errors.check_range('num_words', num_words, 1, 10_000_000)
  return text_preparation.as_text(read_words(_counts_file(_WORD_FILE, data_dir), num_words))


def _counts_file(name: str, data_dir: str | None) -> str:
  """Returns the path of a file of counts, in the data folder or downloaded by TFF's loader."""
  if data_dir is not None:
    return files.existing(os.path.join(data_dir, 'datasets', name))
  import tensorflow_federated as tff  # Slow to import and needed for a download only.

  of_tff = tff.simulation.datasets.stackoverflow
  path = os.path.join(os.path.expanduser('~'), '.keras', 'datasets', name)
  if not os.path.exists(path):  # TFF would unpack it again, while another process may read it.
    with files.border(f'the download of {name}', 'try again, or name a folder that has the file'):
      if name == _WORD_FILE:
        of_tff.load_word_counts()
      else:
        of_tff.load_tag_counts()
  return path


def read_words(path: str, num_words: int) -> list[bytes]:
  """Returns the first `num_words` words, as bytes, of a file with a word and a count per line."""
  with files.border(path), open(path, 'rb') as file:
    # The file is sorted by count, so that the first words are the most frequent.
    lines = (line.split() for line in itertools.islice(file, num_words))
    words = dict.fromkeys(word for word, count in lines if int(count))  # In order, each once.
    if not words:
      raise ValueError('it is empty')
  return list(words)


def read_tags(path: str, num_tags: int) -> list[bytes]:
  """Returns the most common tags, as bytes, of a JSON file of counts by tag; ties keep order."""
  with files.border(path), open(path, encoding='utf-8') as file:
    counts = json.load(file)
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:num_tags]
    if not ranked:
      raise ValueError('it is empty')
    # A tag that JSON escapes as half a character cannot be encoded, which is an error.
    return [tag.encode() for tag, _ in ranked]


def _first(clients: tff_sqlite.SqlClientData, count: int, seed: int) -> list[np.ndarray]:
  """Returns x and y of the first `count` examples; the clients come in a random order."""
  parts = []
  missing = count
  for i in np.random.default_rng([seed, 7]).permutation(len(clients)):
    if missing <= 0:
      break
    part = clients.load(clients.client_ids[i])
    parts.append({k: v[:missing] for k, v in part.items()})
    missing -= len(parts[-1]['y'])
  x = np.concatenate([part['x'] for part in parts])
  y = np.concatenate([part['y'] for part in parts])
  return [x, y]


def build_model(
  num_words: int, padding: language.Padding, seed: int, lstm: language.Lstm = 'tensorflow'
) -> models.Model:
  """Builds a next-word model: embedding of 96, LSTM of 670, dense layer of 96, and output layer.

  There are 4 special tokens besides the words. Initial distributions and the three accuracies are
  those of TFF's baseline. With 10,000 words it has the 4,050,748 parameters of Reddi et al. (2021).
  """
  draw = layers.Initializer(seed)
  size = num_words + 4
  weights = (
    draw.uniform(0.05, size, 96),
    *language.lstm_weights(draw, 96, 670, he_normal=False),
    *(draw.glorot_uniform(670, 96), layers.zeros(96)),
    *(draw.glorot_uniform(96, size), layers.zeros(size)),
  )
  pad = language.PADDING
  unknown = num_words + 1
  end = num_words + 3

  def run(weights: Any, h: tf.Tensor, layer: Callable) -> tf.Tensor:
    h = layer(h, *weights[:3])
    h = language.dense_rows(h, *weights[3:5])
    return language.dense_rows(h, *weights[5:])

  metrics = {
    'accuracy': [pad],
    'accuracy_without_out_of_vocab': [pad, unknown],
    'accuracy_without_out_of_vocab_or_end_of_sentence': [pad, unknown, end],
  }
  return language.build_model(weights, run, STEPS, metrics, padding, lstm)


def build_tag_model(num_words: int, num_tags: int, seed: int) -> layers.SummedLossModel:
  """Builds one logistic regression for each tag (5,000,500 parameters for 10,000 words, 500 tags).

  An example's loss is the mean over tags of the binary cross-entropy. As in TFF's baseline, a
  batch's loss is the sum over its examples; Reddi et al. (2021) tuned their client rate of 100 for
  this sum. As in their code, a word's count is divided by the number of all words of the
  sentence; TFF 0.87's baseline divides by the number of words in the vocabulary. The metrics are
  the recall among the five highest tags and the precision at probability 0.5.
  """

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    counts = tf.cast(x, tf.float32)
    total = tf.reduce_sum(counts, -1, keepdims=True)
    # The last column counts words outside of the vocabulary: in the total, but no input.
    shares = tf.math.divide_no_nan(counts[..., :-1], total)
    return layers.dense(tf.cast(shares, weights[0].dtype), *weights)

  def example_loss(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses, -1)

  def recall(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    top = tf.math.top_k(logits, min(_TOP, num_tags)).indices
    hits = tf.gather(y, top, batch_dims=len(y.shape) - 1)
    return tf.reduce_sum(hits, -1), tf.reduce_sum(y, -1)

  def precision(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    predicted = tf.cast(logits > 0, tf.float32)
    return tf.reduce_sum(predicted * y, -1), tf.reduce_sum(predicted, -1)

  return layers.SummedLossModel(
    initial_weights=layers.perceptron_weights(seed, [num_words, num_tags]),
    forward=forward,
    example_loss=example_loss,
    metrics=collections.OrderedDict(recall_at_5=recall, precision=precision),
    x_spec=tf.TensorSpec([None, num_words + 1], tf.uint8),
    y_spec=tf.TensorSpec([None, num_tags], tf.float32),
    client_axis=True,
  )
