"""Tasks on own arrays: who trains, who is held out, what is recorded, what is refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tff_adaptive import models
from tff_adaptive_tasks import own_data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
CLIENTS = np.repeat([f'c{i:02d}' for i in range(12)], 5)


def rows_of(data):
  return {tuple(row) for row in np.asarray(data['x']).tolist()}


@pytest.mark.parametrize('clients', [CLIENTS, np.tile(CLIENTS[::5], 5)])
def test_each_row_is_trained_on_by_its_client_or_held_out(clients):
  task = tasks.from_arrays(X, Y, clients, validation=0.25, seed=3)
  assert len(task.train.client_ids) == 9
  for client in task.train.client_ids:
    data = task.train.load(client)
    np.testing.assert_array_equal(data['x'], X[client == clients])
    np.testing.assert_array_equal(data['y'], Y[client == clients])
  trained = rows_of(task.train.load_all())
  held = rows_of(task.validation)
  assert not trained & held
  assert len(trained) + len(held) == 60


def test_examples_are_held_out_of_each_client():
  task = tasks.from_arrays(X, Y, CLIENTS, validation=0.4, validation_by='examples', seed=3)
  assert [task.train.num_examples(c) for c in task.train.client_ids] == [3] * 12
  trained = rows_of(task.train.load_all())
  held = rows_of(task.validation)
  assert not trained & held
  assert len(held) == 24
  for share, count in ((0.01, 11), (0.99, 1)):  # One client at least is held out, and one trains.
    assert len(tasks.from_arrays(X, Y, CLIENTS, validation=share).train) == count
  owners = ['single', *['pair'] * 2, *['other'] * 57]  # A client keeps one example.
  task = tasks.from_arrays(X, Y, owners, validation=0.9, validation_by='examples')
  assert task.train.num_examples('single') == task.train.num_examples('pair') == 1


@pytest.mark.parametrize('by', ['clients', 'examples'])
def test_the_seed_decides_what_is_held_out(by):
  first = rows_of(tasks.from_arrays(X, Y, CLIENTS, validation_by=by, seed=3).validation)
  again = rows_of(tasks.from_arrays(X, Y, CLIENTS, validation_by=by, seed=3).validation)
  other = rows_of(tasks.from_arrays(X, Y, CLIENTS, validation_by=by, seed=4).validation)
  assert first == again
  assert first != other


NAMES = np.array(['wolf', 'ape', 'bee'])[Y]


def test_names_of_classes_are_numbered_and_recorded():
  task = tasks.from_arrays(X, NAMES, CLIENTS)
  assert task.preparation.classes == ('ape', 'bee', 'wolf')
  client = task.train.client_ids[0]
  np.testing.assert_array_equal(
    task.preparation.labels(task.train.load(client)['y']), NAMES[client == CLIENTS]
  )


def test_numbers_of_classes_may_have_gaps():
  gaps = tasks.from_arrays(X, Y * 10 - 5, CLIENTS)
  assert gaps.preparation.classes == (-5, 5, 15)
  assert set(gaps.train.load_all()['y']) == {0, 1, 2}
  assert gaps.train.load_all()['y'].dtype == np.int32


def test_validation_arrays_of_ones_own_have_the_classes_of_training():
  task = tasks.from_arrays(X, NAMES, CLIENTS, validation=(X[:2] + 1, ['wolf', 'ape']))
  assert len(task.train.client_ids) == 12
  np.testing.assert_array_equal(task.validation['x'], X[:2] + 1)
  assert task.validation['y'].tolist() == [2, 0]
  with pytest.raises(tasks.DataError, match="has 'cat', a class that training has not"):
    tasks.from_arrays(X, NAMES, CLIENTS, validation=(X[:2], ['wolf', 'cat']))


@pytest.mark.parametrize('labels', [Y, Y.astype(np.uint8), np.array(['a', 'b', 'c'])[Y], Y / 2])
def test_labels_of_a_column_are_those_of_a_list(labels):
  flat = tasks.from_arrays(X, labels, CLIENTS)
  held = (X[:2], labels[:2])
  for y in (labels[:, None], labels[:, None].tolist()):
    task = tasks.from_arrays(X, y, CLIENTS)
    assert (task.metric, task.preparation) == (flat.metric, flat.preparation)
    np.testing.assert_array_equal(task.train.load_all()['y'], flat.train.load_all()['y'])
    for pair in (held, (held[0], held[1][:, None])):
      assert tasks.from_arrays(X, y, CLIENTS, validation=pair).validation['y'].shape == (2,)


def test_a_model_that_takes_a_column_of_labels_gets_one():
  def build(seed):
    return models.Model(
      initial_weights=[np.zeros([3, 3], np.float32)],
      forward=lambda weights, x, training, seed: x @ weights[0],
      example_loss=lambda p, y: tf.keras.losses.sparse_categorical_crossentropy(y, p, True),
      x_spec=tf.TensorSpec([None, 3]),
      y_spec=tf.TensorSpec([None, 1], tf.int32),
    )

  task = tasks.from_arrays(X, Y[:, None], CLIENTS, model=build)
  assert task.train.load_all()['y'].shape[1:] == task.validation['y'].shape[1:] == (1,)


def keras(shape, outputs):
  inputs = tf.keras.Input(shape)
  return tf.keras.Model(inputs, tf.keras.layers.Dense(outputs, 'softmax')(inputs))


@pytest.mark.parametrize('dtype', [int, float, bool])
@pytest.mark.parametrize('model', ['logistic_regression', keras])
def test_labels_of_zeros_and_ones_need_a_loss(dtype, model):
  with pytest.raises(tasks.DataError, match=r'one-hot, \[60, 3\]: give class numbers, y.argmax'):
    tasks.from_arrays(X, np.eye(3)[Y].astype(dtype), CLIENTS, model=model)
  several = (X > 0).astype(dtype)
  with pytest.raises(tasks.DataError, match=r'zeros and ones, .*binary_crossentropy'):
    tasks.from_arrays(X, several, CLIENTS, model=model)
  if model is keras:
    task = tasks.from_arrays(X, several, CLIENTS, model=model, loss='binary_crossentropy')
    assert task.train.load_all()['y'].shape[1] == 3


def test_classes_and_clients_in_two_forms_of_unicode_are_one():
  names = np.array(['bar', 'caf\u00e9'])[Y // 2]
  mixed = np.where(np.arange(60) % 2, names, np.array(['bar', 'cafe\u0301'])[Y // 2])
  owners = [name + ('\u00e9', 'e\u0301')[i % 2] for i, name in enumerate(CLIENTS)]
  task = tasks.from_arrays(X, mixed, owners, validation=(X[:2], ['bar', 'cafe\u0301']))
  assert task.preparation.classes == ('bar', 'caf\u00e9')
  assert len(task.train.client_ids) == 12
  assert task.validation['y'].tolist() == [0, 1]


def test_standardising_uses_the_training_examples_alone():
  shifted = np.concatenate([X, np.full([60, 1], 7.0)], 1) * [1, 10, 100, 1] + [0, 5, 50, 0]
  task = tasks.from_arrays(shifted, Y, CLIENTS, standardise=True)
  x = task.train.load_all()['x']
  np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
  np.testing.assert_allclose(x.std(0), [1, 1, 1, 0], atol=1e-5)  # The last is constant.
  assert abs(task.validation['x'].mean(0)).max() > 1e-3
  # In float32 the sum of so many would be another.
  assert own_data._statistics(np.full([100_000, 1], 1.1, np.float32)) == (np.float32(1.1), 1)
  held = np.isin(CLIENTS, task.train.client_ids, invert=True)
  np.testing.assert_array_equal(task.preparation(shifted[held]), task.validation['x'])
  # Times in seconds: neighbours are one number in float32.
  times = 1_700_000_000 + np.arange(60)[:, None]
  for small in (times, times.astype(float), times * 1e-20):  # The last are far below 1.
    task = tasks.from_arrays(small, Y, CLIENTS, standardise=True)
    x = task.train.load_all()['x']
    assert len(np.unique(x)) == len(x)
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-5)
    np.testing.assert_array_equal(task.preparation(small[held]), task.validation['x'])


@pytest.mark.filterwarnings('error:overflow')
@pytest.mark.parametrize(
  'change, message',
  [
    (dict(x=X[:, 0]), r'x has shape \(60,\)'),
    (dict(x=X.astype(str)), 'it must hold numbers'),
    (dict(x=[[1, 2], [3]] * 30), 'x has lists of different lengths'),
    (dict(y=[[1, 2], [3]] * 30), 'y has lists of different lengths'),
    (dict(y=list(range(60))), 'labels have 60 different values in 60 rows, such as 0'),
    (dict(clients=[['a'], ['a', 'b']] * 30), 'clients has lists of different lengths'),
    (dict(x=np.where(np.arange(180).reshape(60, 3) == 53, 1e39, X)), 'x, row 17, has inf'),
    (dict(x=np.ma.masked_where(X[0, 0] == X, X)), r'x has masked values \(1\): fill them'),
    (dict(y=np.ma.masked_where(Y == 0, Y)), r'y has masked values'),
    (dict(y=Y[:59]), r'x has 60 rows and y has shape \(59,\)'),
    (dict(clients=CLIENTS[:59]), 'clients has shape'),
    (dict(clients=['a'] * 60), "all rows belong to one client, 'a'"),
    (dict(x=X[:1], y=Y[:1], clients=['a']), "all rows belong to one client, 'a'"),
    (dict(clients=[None, *['a'] * 59]), 'clients have dtype object'),
    (dict(clients=np.arange(60.0)), 'clients have dtype float64'),
    (dict(y=np.zeros(60, int)), '1 different values'),
    (dict(y=np.array([1 + 2j] * 60)), 'labels have dtype complex128'),
    (dict(y=np.array([1, 'a'] * 30, dtype=object)), 'labels have dtype object'),
    (dict(y=np.where(np.arange(60) == 7, np.nan, 1.0)), 'the label, row 7, has nan'),
    (dict(validation=0), 'validation is 0'),
    (dict(validation=1), 'validation is 1'),
    (dict(validation=[X, Y, Y]), 'it must be a share such as 0.2, or two arrays'),
    (dict(validation=(X[:9, :2], Y[:9])), r'x of validation has shape \(9, 2\); .* be \(9, 3\)'),
    (dict(validation=(X[:9], Y[:8])), r'y of validation has shape \(8,\); it must be \(9,\)'),
    (dict(y=X[:, 0], validation=(X[:9], [np.inf] * 9)), 'the y of validation, row 0, has inf'),
    (dict(y=X[:, 0], validation=(X[:9], ['a'] * 9)), 'y of validation has dtype .*hold numbers'),
    (
      dict(y=Y[:, None] > [0, 1], targets=['a', 'b'], validation=(X[:9], np.full([9, 2], 2))),
      'the y of validation must be 0 or 1',
    ),
    (dict(y=np.full(60, 1e39)), 'the label, row 0, has inf'),
    (dict(y=np.full([60, 2], 2**40)), 'the label must hold whole numbers within'),
    (dict(clients=[1, '1', *['a'] * 58]), "the clients 1 and '1' would have one name"),
    (
      dict(clients=np.array([1, '1', *['a'] * 58], object)),
      "the clients 1 and '1' would have one name",
    ),
    (dict(validation_by='rows'), "validation_by is 'rows'"),
    (dict(validation=0.01, validation_by='examples'), 'holds out no example of any client'),
    (dict(x=np.zeros([60, 2, 2]), standardise=True), r'standardise is for inputs'),
  ],
)
def test_arrays_that_cannot_be_used_are_refused(change, message):
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_arrays(**{'x': X, 'y': Y, 'clients': CLIENTS, **change})


def test_clients_of_tff_have_pairs_or_named_parts():
  slices = {c: {'x': X[c == CLIENTS], 'label': Y[c == CLIENTS]} for c in CLIENTS[::5]}
  data = tff.simulation.datasets.TestClientData(slices)
  pairs = data.preprocess(lambda d: d.map(lambda e: (e['x'], tf.strings.as_string(e['label']))))
  for task, classes in (
    (tasks.from_tff(data, label='label', validation_by='examples'), (0, 1, 2)),
    (tasks.from_tff(pairs, validation_by='examples'), ('0', '1', '2')),
  ):
    assert task.preparation.classes == classes
    assert rows_of(task.train.load('c03')) < rows_of({'x': X[15:20]})
  for wrong in (data, data.preprocess(lambda d: d.take(0))):
    with pytest.raises(tasks.DataError, match=r'the ClientData cannot be read .*by features= and'):
      tasks.from_tff(wrong)
