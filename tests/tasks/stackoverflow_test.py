"""Stack Overflow: TFF's preprocessing, vocabularies and models, from local files."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.simulation.baselines.stackoverflow import (
  tag_prediction_preprocessing,
  tag_prediction_tasks,
  word_prediction_models,
  word_prediction_preprocessing,
)

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import stackoverflow, text_preparation

WORDS = [b'the', b'a', b'caf\xc3\xa9', b'x']
TAGS = [b'r', b'python', b'c++']
SPEC = tff.simulation.baselines.ClientSpec(num_epochs=1, batch_size=3, shuffle_buffer_size=1)
SENTENCES = {
  'tokens': [b'the a b', b'', b'x ' * 30, b' the  a', b'a' + b' the' * 19, b'caf\xc3\xa9 \xff the'],
  'title': [b'a title', b'x x', b'the', b'', b'\xfe', b'none'],
  'tags': [b'r|python', b'', b'c++', b'java|r', b'python|python', b'go'],
}


FEATURES = {name: np.array(column, object) for name, column in SENTENCES.items()}
OF_WORDS = text_preparation.TextPreparation(
  'words', text_preparation.as_text(WORDS), stackoverflow.STEPS
)


def joined(dataset):
  pairs = list(dataset.as_numpy_iterator())
  return tuple(np.concatenate(batches) for batches in zip(*pairs))


def test_sentences_are_cut_as_tff_cuts_them():
  prepare = word_prediction_preprocessing.create_preprocess_fn(SPEC, WORDS)
  expected = joined(prepare(tf.data.Dataset.from_tensor_slices(SENTENCES)))
  pairs = OF_WORDS.pairs(FEATURES['tokens'])
  for a, b in zip(pairs, expected):
    np.testing.assert_array_equal(a, b)
    assert a.dtype == np.int32


def test_bags_are_tffs():
  prepare = tag_prediction_preprocessing.create_preprocess_fn(SPEC, WORDS, TAGS)
  shares, indicators = joined(prepare(tf.data.Dataset.from_tensor_slices(SENTENCES)))
  words, tags = map(text_preparation.as_text, (WORDS, TAGS))
  x, y = text_preparation.TextPreparation('bags', words, classes=tags).pairs(FEATURES)
  assert x.dtype == np.uint8
  known = x[:, :-1]
  np.testing.assert_allclose(known / np.maximum(known.sum(1, keepdims=True), 1), shares, rtol=1e-6)
  texts = [b' '.join(pair).split() for pair in zip(SENTENCES['tokens'], SENTENCES['title'])]
  np.testing.assert_array_equal(x.sum(1), [len(words) for words in texts])
  assert x[:, -1].any()
  np.testing.assert_array_equal(y, indicators)
  bags = text_preparation.TextPreparation('bags', ('the',), classes=('r',))  # Counts end at 255.
  np.testing.assert_array_equal(bags({'tokens': ['the ' * 300], 'title': ['']}), [[255, 0]])


@pytest.mark.exhaustive
def test_the_word_model_its_losses_and_its_accuracies_are_tffs():
  assert stackoverflow.build_model(10_000, 'published', 0).num_parameters == 4_050_748
  theirs = word_prediction_models.create_recurrent_model(len(WORDS) + 4)
  x, y = OF_WORDS.pairs(FEATURES['tokens'])
  cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  theirs.set_weights(stackoverflow.build_model(len(WORDS), 'tff', 1).initial_weights[0])
  logits = theirs(x)
  for padding, expected in (('tff', logits), ('published', tf.identity(logits))):
    model = stackoverflow.build_model(len(WORDS), padding, seed=1)
    weights = tuple(map(tf.constant, model.initial_weights[0]))
    loss, _ = model.loss_and_metrics(weights, tf.constant(x), tf.constant(y))
    np.testing.assert_allclose(loss, cross_entropy(y, expected), rtol=1e-5)
  logits = np.random.default_rng(0).normal(size=[*y.shape, 8]).astype(np.float32)
  ignored = {'accuracy': [0], 'accuracy_without_out_of_vocab': [0, 5]}
  ignored['accuracy_without_out_of_vocab_or_end_of_sentence'] = [0, 5, 7]
  from tensorflow_federated.python.simulation.baselines import keras_metrics

  assert list(ignored) == list(model.metric_fns)
  for name, tokens in ignored.items():
    metric = keras_metrics.MaskedCategoricalAccuracy(masked_tokens=tokens)
    metric.update_state(tf.constant(y), logits)
    hit, counted = model.metric_fns[name](tf.constant(logits), tf.constant(y))
    np.testing.assert_allclose(sum(hit.numpy()) / sum(counted.numpy()), metric.result(), rtol=1e-6)


def test_the_tag_model_is_tffs():
  assert stackoverflow.build_tag_model(10_000, 500, 0).num_parameters == 5_000_500
  rng = np.random.default_rng(0)
  x = rng.integers(0, 3, [7, 31]).astype(np.uint8)
  x[0] = 0  # Its logits are exactly 0, at the threshold.
  y = (rng.uniform(size=[7, 20]) < 0.2).astype(np.float32)
  model = stackoverflow.build_tag_model(30, 20, 1)
  theirs = tag_prediction_tasks._build_logistic_regression_model(30, 20)
  loss = tf.keras.losses.BinaryCrossentropy(reduction=tf.keras.losses.Reduction.SUM)
  # The published code takes the mean over all words' one-hot rows, then leaves out the last column.
  shares = (x[:, :-1] / np.maximum(x.sum(1, keepdims=True), 1)).astype(np.float32)
  theirs.set_weights(model.initial_weights[0])
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  ours, means = model.loss_and_metrics(weights, x, y)
  np.testing.assert_allclose(ours, loss(y, theirs(shares)), rtol=1e-5)
  sums = model.unpack_metrics(means)
  recall = tf.keras.metrics.Recall(top_k=5)
  precision = tf.keras.metrics.Precision()
  for metric, name in ((recall, 'recall_at_5'), (precision, 'precision')):
    metric.update_state(y, theirs(shares))
    np.testing.assert_allclose(sums[name][0] / sums[name][1], metric.result(), rtol=1e-6)


@pytest.mark.parametrize(
  'read, content, expected',
  [
    # Any bytes are a word, and a word counts once.
    (stackoverflow.read_words, b'the 5\n\xff\xfe 3\nthe 2\nbroken\n', [b'the', b'\xff\xfe']),
    (stackoverflow.read_tags, b'{"r": 1, "c": 3, "b": 3, "d": 4}', [b'd', b'c', b'b']),
    (stackoverflow.read_words, b'', 'it is empty'),
    (stackoverflow.read_words, b'the 5\nbroken\n', 'not enough values'),
    (stackoverflow.read_words, b'the five\n', "b'five'"),
    (stackoverflow.read_tags, b'{}', 'it is empty'),
    (stackoverflow.read_tags, b'{"a": "x"}', 'bad operand type'),
  ],
)
def test_the_three_commonest_of_a_file_of_counts(tmp_path, read, content, expected):
  path = tmp_path / 'counts'
  path.write_bytes(content)
  if isinstance(expected, list):
    assert read(str(path), 3) == expected
  else:
    with pytest.raises(tasks.DataError, match=f'{path} cannot be read .*{expected}'):
      read(str(path), 3)


def write_stackoverflow(folder):
  """Three users of one, two and three sentences in both splits, ten words and four tags."""

  def proto(text, joined):
    return task_data.example(tokens=text, title=b'the title', tags=joined)

  sentences = [(b'the a', b'r|c++'), (b'a the x', b'python'), (b'x', b'go')]
  protos = [proto(text, joined) for text, joined in sentences]
  users = {f'u{n}': protos[:n] for n in (1, 2, 3)}
  task_data.write(folder / 'stackoverflow.sqlite', {'train': users, 'test': users})
  (folder / 'datasets').mkdir()
  words = b'the 9\na 8\ntitle 7\n' + b''.join(b'w%d 1\n' % i for i in range(7))
  (folder / 'datasets' / 'stackoverflow.word_count').write_bytes(words)
  counts = {'go': 1, 'r': 3, 'python': 3, 'c++': 9}
  (folder / 'datasets' / 'stackoverflow.tag_count').write_text(json.dumps(counts))
  return str(folder)


def test_counts_are_downloaded_by_tffs_loaders(monkeypatch):
  of_tff = tff.simulation.datasets.stackoverflow
  called = []
  for kind in ('tag', 'word'):
    monkeypatch.setattr(of_tff, f'load_{kind}_counts', lambda kind=kind: called.append(kind))
  counts = [
    stackoverflow._counts_file(f'stackoverflow.{kind}_count', None) for kind in ('word', 'tag')
  ]
  assert called == ['word', 'tag']
  assert counts[0] == os.path.expanduser('~/.keras/datasets/stackoverflow.word_count')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder with the files of `write_stackoverflow`."""
  path = tmp_path_factory.mktemp('data')
  return write_stackoverflow(path)


def test_embedded_users_are_the_clients(folder):
  nwp = tasks.load('stackoverflow_nwp', folder, num_words=3, lstm='compiled')
  assert [nwp.train.num_examples(c) for c in nwp.train.client_ids] == [1, 2, 3]
  assert nwp.build_model(0).initial_weights[0][0].shape == (7, 96)
  assert nwp.build_model.keywords == {'lstm': 'compiled'}
  lr = tasks.load('stackoverflow_lr', folder, num_words=3, num_tags=3)
  assert lr.preparation.classes == ('c++', 'r', 'python')
  assert [lr.train.load('u3')[name].shape for name in 'xy'] == [(3, 4), (3, 3)]


def test_validation_takes_users_in_a_seeded_order(folder):
  def load(task, **options):
    return tasks.load(task, folder, num_words=3, **options).validation['x']

  for name in ('stackoverflow_nwp', 'stackoverflow_lr'):
    whole = [load(name, seed=s) for s in range(6)]
    assert {len(x) for x in whole} == {6}
    assert len({x.tobytes() for x in whole}) > 1
    for seed, x in enumerate(whole):
      np.testing.assert_array_equal(load(name, seed=seed, num_validation=4), x[:4])
    with pytest.raises(tasks.DataError, match='num_validation is 0; it must be from 1 to'):
      load(name, num_validation=0)
