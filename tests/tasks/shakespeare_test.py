"""Shakespeare: TFF's sequences, TFF's model, and both losses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.simulation.baselines.shakespeare import (
  char_prediction_models,
  char_prediction_preprocessing,
)

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import errors, shakespeare


def tff_sequences(dataset):
  """What TFF's baseline makes of a client, without its shuffling."""
  spec = tff.simulation.baselines.ClientSpec(num_epochs=1, batch_size=1000, shuffle_buffer_size=1)
  prepare = char_prediction_preprocessing.create_preprocess_fn(spec)
  pairs = list(prepare(dataset).as_numpy_iterator())
  return tuple(np.concatenate(batches) for batches in zip(*pairs))


def test_the_vocabulary_is_tffs():
  theirs = char_prediction_preprocessing
  assert list(shakespeare.VOCABULARY) == [ord(c) for c in theirs.CHAR_VOCAB]
  special = (0, shakespeare.OUT_OF_VOCABULARY, shakespeare.BEGIN, shakespeare.END)
  assert special == theirs.get_special_tokens()
  assert shakespeare.VOCABULARY_SIZE == tff.simulation.baselines.shakespeare.VOCAB_LENGTH == 90


def test_any_text_is_cut_as_tff_cuts_it():
  snippets = [b'', b'x' * 78, b'y' * 79, b'z' * 80]
  snippets += ['Où? \u2014 ~'.encode(), b'\xff\x00', b'a b' * 99]
  dataset = tf.data.Dataset.from_tensor_slices({'snippets': snippets})
  x, y = tff_sequences(dataset)
  sequences, counts = shakespeare.to_sequences(np.array(snippets, object))
  np.testing.assert_array_equal(sequences[:, :-1], x)
  np.testing.assert_array_equal(sequences[:, 1:], y)
  np.testing.assert_array_equal(counts, [1, 1, 1, 2, 1, 1, 4])


SNIPPETS = np.array([b'Never, never!', b'To be ' * 30, b'', b'My lord, ' * 8], object)
SEQUENCES = shakespeare.to_sequences(SNIPPETS)[0].astype(np.int32)
X = SEQUENCES[:, :-1]
Y = SEQUENCES[:, 1:]


@pytest.mark.exhaustive
def test_the_model_and_its_losses_are_keras_and_its_weights_are_drawn_as_the_baselines_are():
  tf.keras.utils.set_random_seed(3)
  theirs = char_prediction_models.create_recurrent_model(90, 20)
  theirs.build([None, 20])
  model = shakespeare.build_model(1)
  levels = np.linspace(0, 1, 21)
  assert model.num_parameters == 820_522
  for w, other in zip(model.initial_weights[0], theirs.get_weights()):
    if w.ndim == 1:  # Biases: ones for the forget gate, and zeros.
      np.testing.assert_array_equal(w, other)
      continue
    is_recurrent = w.shape == (256, 1024) and np.allclose(other @ other.T, np.eye(256), atol=1e-4)
    if is_recurrent:
      np.testing.assert_allclose(w @ w.T, np.eye(256), atol=1e-4)
    # The others' least and greatest too: normal numbers are cut off at two deviations.
    these = levels[1:-1] if is_recurrent else levels
    actual = np.quantile(w, these)
    wanted = np.quantile(other, these)
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=0.2 * other.std())
  theirs.set_weights(model.initial_weights[0])
  x = X[:, :20]  # Long enough for padding.
  y = Y[:, :20]
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  logits = theirs(x)
  np.testing.assert_allclose(
    model.forward(weights, x, False, None)[x != 0], logits[x != 0], rtol=1e-4, atol=1e-5
  )
  cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  # Without Keras's mask the loss is the mean over all steps, as in the published code.
  for padding, expected in (('tff', logits), ('published', tf.identity(logits))):
    loss, _ = shakespeare.build_model(1, padding).loss_and_metrics(weights, x, y)
    np.testing.assert_allclose(loss, cross_entropy(y, expected), rtol=1e-5)


TEXTS = {'b': [b'x' * 100, b'to be'], 'a': [b'', b'y' * 79, b'never']}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder with a file of two roles."""
  path = tmp_path_factory.mktemp('data')
  clients = {}
  for client, snippets in TEXTS.items():
    clients[client] = [task_data.example(snippets=text) for text in snippets]
  held_out = {'a': [task_data.example(snippets=b'hark')]}
  task_data.write(path / 'shakespeare.sqlite', {'train': clients, 'test': held_out})
  return str(path)


def test_embedded_roles_are_the_clients(folder):
  task = tasks.load('shakespeare', folder)
  assert list(task.train.client_ids) == ['a', 'b']
  for client, snippets in TEXTS.items():
    expected, _ = shakespeare.to_sequences(np.array(snippets, object))
    loaded = task.train.load(client)
    assert task.train.num_examples(client) == len(expected) == len(loaded['x']) == 3
    np.testing.assert_array_equal(loaded['x'], expected[:, :-1])
    np.testing.assert_array_equal(loaded['y'], expected[:, 1:])
    assert loaded['x'].dtype == loaded['y'].dtype == np.int32


def test_units_are_snippets_and_a_clients_weight_is_its_number_of_characters(folder):
  task = tasks.load('shakespeare', folder)
  counts = shakespeare.to_sequences(SNIPPETS)[1]
  starts = np.cumsum(counts) - counts
  np.testing.assert_array_equal(np.flatnonzero(task.unit_starts(X)), starts)
  assert len(starts) < len(X)
  model = task.build_model(0)
  _, sums = model.loss_and_metrics(tuple(map(tf.constant, model.initial_weights[0])), X, Y)
  tokens = task.client_weight(model.unpack_metrics(sums * len(X)))
  np.testing.assert_allclose(tokens, np.count_nonzero(Y), rtol=1e-6)


def test_snippets_are_dealt_to_workers(folder):
  dealt = tasks.load('shakespeare_transformer', folder, workers=4).train
  sizes = [dealt.num_examples(c) for c in dealt.client_ids]
  assert sizes == [2, 2, 1, 1]
  whole = tasks.load('shakespeare', folder).train.load_all()
  parts = dealt.load_all()
  for name in 'xy':
    np.testing.assert_array_equal(*(np.sort(data[name], axis=0) for data in (whole, parts)))
  assert len(tasks.load('shakespeare_transformer', folder, workers=6).train) == 6
  for workers in (0, 7):
    with pytest.raises(errors.DataError, match=f'workers is {workers}; it must be from 1 to 6'):
      tasks.load('shakespeare_transformer', folder, workers=workers)


def test_the_transformer_has_the_size_that_the_guide_says():
  assert shakespeare.build_transformer(0).num_parameters == 1_279_130
