"""Next-character prediction in Shakespeare's plays; a client is a role.

The data are TFF's (`tff.simulation.datasets.shakespeare`). A snippet becomes the ids of its
characters between a beginning and an end token, padded to sequences of 81 ids. As in TFF's
baseline task and the code of Reddi et al. (2021), a client shuffles its snippets, so that sequences
of a snippet follow each other. Here, as in TFF, it shuffles all its snippets; that code uses a
buffer of 50. As in that code, a client's weight is its number of tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import errors, task as task_lib, text_preparation
from tff_adaptive_tasks.data import tff_sqlite
from tff_adaptive_tasks.models import language, layers, transformer

STEPS = 80
# The order of the characters is that of TFF's tutorial and baseline task; ids begin with 1.
VOCABULARY = (
  b'dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#\'/37;?bfjnrvzBFJNRVZ"&*.26:\naeimquyAEIMQUY]!%)-159\r'
)
OUT_OF_VOCABULARY, BEGIN, END = (len(VOCABULARY) + i for i in (1, 2, 3))
VOCABULARY_SIZE = len(VOCABULARY) + 4
PREPARATION = text_preparation.TextPreparation('characters', tuple(VOCABULARY.decode()), STEPS)
VALIDATION_SEQUENCES = 512  # In `load_transformer`.
_FEATURES = {'snippets': tf.io.FixedLenFeature([], tf.string)}


def load(
  data_dir: str | None = None,
  padding: language.Padding = 'published',
  lstm: language.Lstm = 'tensorflow',
) -> task_lib.Task:
  """Loads the task of predicting the next character. All data are kept in memory.

  Args:
    data_dir: The folder with `shakespeare.sqlite`; None downloads it.
    padding: 'published' counts padded steps in the loss, as Reddi et al. (2021) do; 'tff' does not.
    lstm: 'tensorflow' or 'compiled'; this package's compiled LSTM is 1.4 times as fast on a CPU.

  Returns:
    The task. Its validation data are all clients' test snippets.

  Raises:
    tasks.DataError: If the data cannot be used.
  """
  return _load(
    data_dir,
    'shakespeare',
    lambda seed: build_model(seed, padding, lstm),
    client_weight=language.num_tokens,
  )


def load_transformer(
  data_dir: str | None = None, workers: int | None = None, seed: int = 0
) -> task_lib.Task:
  """Loads the data of `load` for a transformer of 1,279,130 parameters; see `build_transformer`.

  Args:
    data_dir: The folder with `shakespeare.sqlite`; None downloads it.
    workers: Number of clients over which all training sequences are divided evenly, as in DiLoCo.
      With None each role is a client.
    seed: The seed of this division.

  Returns:
    The task. Its loss is the mean over a batch's tokens that are not padding. Its validation data
    are `VALIDATION_SEQUENCES` fixed sequences of the test snippets, because an evaluation on all
    sequences takes minutes on a CPU.

  Raises:
    tasks.DataError: If the data cannot be used, or there are more workers than sequences.
  """
  task = _load(data_dir, 'shakespeare_transformer', build_transformer)
  test = task.validation
  # A fixed seed, so that runs with other seeds are evaluated on the same sequences.
  rows = np.random.default_rng(29).permutation(len(test['y']))[:VALIDATION_SEQUENCES]
  validation = task_lib.example_arrays(test['x'][rows], test['y'][rows])
  task = dataclasses.replace(task, validation=validation)
  if workers is None:
    return task
  every = task.train.load_all()
  order = np.random.default_rng([seed, 29]).permutation(len(every['y']))
  if not 0 < workers <= len(order):
    raise errors.DataError(
      f'workers is {workers}; it must be from 1 to {len(order):,}, the number of sequences'
    )
  parts = np.array_split(order, workers)
  dealt = {str(i): (every['x'][rows], every['y'][rows]) for i, rows in enumerate(parts)}
  # The sequences of a snippet are now with different clients.
  return dataclasses.replace(task, train=task_lib.InMemoryClientData(dealt), unit_starts=None)


def _load(
  data_dir: str | None, name: str, build: Callable[[int], models.Model], **more: Any
) -> task_lib.Task:
  path = tff_sqlite.find_tff_file('shakespeare.sqlite', data_dir)
  train, test = (tff_sqlite.SqlClientData(path, s, _FEATURES, None) for s in ('train', 'test'))
  features, owner = train.all_features()
  sequences, counts = to_sequences(features['snippets'])
  # A client's number of sequences is the sum over its snippets.
  ends = np.cumsum(np.bincount(owner, weights=counts, minlength=len(train)).astype(np.int64))[:-1]
  sequences = sequences.astype(np.int32)
  clients = {c: (s[:, :-1], s[:, 1:]) for c, s in zip(train.client_ids, np.split(sequences, ends))}
  return task_lib.Task(
    name=name,
    build_model=build,
    train=task_lib.InMemoryClientData(clients),
    validation=task_lib.example_arrays(*PREPARATION.pairs(test.all_features()[0]['snippets'])),
    source=f'{path}, splits train and test',
    unit_starts=lambda x: tf.equal(x[:, 0], BEGIN),
    preparation=PREPARATION,
    **more,
  )


# Converts snippets to padded sequences of token ids, and counts those of each snippet.
to_sequences = functools.partial(
  text_preparation.character_sequences, vocabulary=VOCABULARY, steps=STEPS
)


def build_model(
  seed: int, padding: language.Padding = 'published', lstm: language.Lstm = 'tensorflow'
) -> models.Model:
  """Builds a model of an embedding of 8, two LSTMs of 256 and a dense layer of 90 outputs.

  It has 820,522 parameters. Their initial distributions are those of TFF's baseline.
  """
  draw = layers.Initializer(seed)
  weights = (
    draw.uniform(0.05, VOCABULARY_SIZE, 8),
    *language.lstm_weights(draw, 8, 256, he_normal=True),
    *language.lstm_weights(draw, 256, 256, he_normal=True),
    *(draw.glorot_uniform(256, VOCABULARY_SIZE), layers.zeros(VOCABULARY_SIZE)),
  )

  def run(weights: Any, h: tf.Tensor, layer: Callable) -> tf.Tensor:
    h = layer(h, *weights[:3])
    h = layer(h, *weights[3:6])
    return language.dense_rows(h, *weights[6:])

  return language.build_model(weights, run, STEPS, {'accuracy': [language.PADDING]}, padding, lstm)


def build_transformer(seed: int) -> models.Model:
  """Builds a transformer of four blocks (160 units, 4 heads) with a dense output layer of 90."""
  weights = transformer.initial_weights(seed, VOCABULARY_SIZE, STEPS, size=160, blocks=4)

  def run(weights: Any, h: tf.Tensor, layer: Callable) -> tf.Tensor:
    del layer  # It has no LSTM.
    return transformer.run(weights, h, heads=4)

  return language.build_model(weights, run, STEPS, {'accuracy': [language.PADDING]}, 'tff')
