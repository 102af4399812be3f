"""Which model learns own data, and models that do not fit them."""

import functools
import typing

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tff_adaptive import models
from tff_adaptive_tasks import mnist

keras = tf.keras
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3)).astype(np.float32)
CLASSES = np.array(['low', 'mid', 'high'])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0)]
BINARY = X[:, 0] > X[:, 1]
NUMBERS = (X @ [1.0, -2.0, 0.5]).astype(np.float32)
CLIENTS = np.repeat(np.arange(8), 10)


def dense(units, activation=None, inputs=3):
  return lambda: keras.Sequential([keras.Input([inputs]), keras.layers.Dense(units, activation)])


def nested(activation, *layers):
  return keras.Sequential([keras.Input([3]), dense(1, activation)(), *layers])


def by_shape(shape, outputs):
  return keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs)])


def test_linear_regression_has_squared_and_absolute_errors():
  task = tasks.from_arrays(X, NUMBERS, CLIENTS)
  weights = [np.float32([[1], [-1], [0.3]]), np.full(1, 0.2, np.float32)]
  metrics = models.build_evaluation(task.build_model(0))(weights, task.validation)
  errors = task.validation['x'] @ weights[0][:, 0] + 0.2 - task.validation['y']
  assert metrics['loss'] == pytest.approx(np.mean(errors**2), rel=1e-5)
  assert metrics['mean_absolute_error'] == pytest.approx(np.mean(abs(errors)), rel=1e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
  'activation, options, expected',
  [
    ('sigmoid', {}, 0.5),
    (None, {}, 0.0),
    ('sigmoid', {'loss': 'binary_crossentropy'}, 0.5),
    (None, {'loss': 'mse', 'threshold': 0.5}, 0.5),
    ('sigmoid', {'threshold': 0.3}, 0.3),
    (None, {'metrics': ['accuracy']}, 0.0),
    ('sigmoid', {'model': lambda: nested('sigmoid')}, 0.5),
    ('sigmoid', {'model': lambda: nested('sigmoid', keras.layers.Reshape([1]))}, 0.5),
  ],
)
def test_the_labels_of_one_output_are_those_that_accuracy_counts(activation, options, expected):
  task = tasks.from_arrays(X, BINARY, CLIENTS, **{'model': dense(1, activation), **options})
  assert task.preparation.threshold == expected
  model = task.build_model(0)
  weights = [np.float32([[1], [-1], [0]]), np.full(1, 0.3, np.float32)]
  predicted = model.forward(weights, task.validation['x'], False, None).numpy()
  labels = task.preparation.labels(predicted)
  accuracy = np.mean(labels == task.validation['y'].astype(bool))
  assert accuracy == pytest.approx(
    models.build_evaluation(model)(weights, task.validation)['accuracy']
  )
  assert 0 < labels.mean() < 1


def of_width(shape=(3,), outputs=3, width=16):
  layers = [keras.layers.Dense(width), keras.layers.Dense(outputs)]
  return keras.Sequential([keras.Input(shape), *layers])


def of_a_seed(seed=0, width=4):
  loss = keras.losses.SparseCategoricalCrossentropy(True)
  return models.from_keras(lambda: of_width(width=width), loss, seed=seed)


@pytest.mark.parametrize(
  'model, width',
  [
    (lambda shape, outputs, width=16: of_width(shape, outputs, width), 16),
    (functools.partial(lambda shape, outputs, width: of_width(width=width), width=8), 8),
    (lambda width=16, *others, **options: of_width(width=width), 16),
    (of_a_seed, 4),
    (lambda seed, width=5: of_a_seed(seed, width), 5),
  ],
)
def test_arguments_with_a_default_do_not_say_what_a_function_makes(model, width):
  built = tasks.from_arrays(X, CLASSES, CLIENTS, model=model).build_model(1)
  assert built.initial_weights[0][0].shape == (3, width)


ONE_HOT = np.eye(2, dtype=np.float32)[RNG.integers(0, 2, 80)]


class Defaults(typing.NamedTuple):
  """What follows from a loss and targets."""

  loss: object
  y: np.ndarray
  metrics: tuple[str, ...]
  is_numbers: bool


@pytest.mark.parametrize(
  'case',
  [
    Defaults(loss=None, y=NUMBERS, metrics=('loss', 'mean_absolute_error', 'r2'), is_numbers=True),
    Defaults(
      loss=None,
      y=BINARY,
      metrics=('loss', 'accuracy', 'balanced_accuracy', 'f1', 'auc_roc', 'auc_pr'),
      is_numbers=False,
    ),
    Defaults(loss='mae', y=np.stack([NUMBERS] * 2, 1), metrics=('loss',), is_numbers=True),
    Defaults(loss='categorical_crossentropy', y=ONE_HOT, metrics=('loss',), is_numbers=False),
    Defaults(
      loss=keras.losses.BinaryCrossentropy(True),
      y=ONE_HOT.astype(int),
      metrics=('loss',),
      is_numbers=False,
    ),
  ],
)
def test_default_metrics_and_labels_follow_targets_and_loss(case):
  model = dense(1) if case.y.ndim == 1 else by_shape
  task = tasks.from_arrays(X, case.y, CLIENTS, model=model, loss=case.loss)
  assert task.build_model(0).metric_names == case.metrics
  assert task.metric == ('accuracy' if 'accuracy' in case.metrics else 'loss')
  assert task.preparation.is_numbers is case.is_numbers


def test_the_default_loss_takes_scores_or_probabilities_as_the_last_layer_gives_them():
  weights = [RNG.normal(size=(3, 3)).astype(np.float32), np.zeros(3, np.float32)]
  losses = []
  for activation in (None, 'softmax'):
    task = tasks.from_arrays(X, CLASSES, CLIENTS, model=dense(3, activation))
    losses.append(models.build_evaluation(task.build_model(0))(weights, task.validation)['loss'])
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_seed_draws_the_weights():
  for x, model, width in ((X[:, None], 'mlp', 100), (X, by_shape, 3)):
    task = tasks.from_arrays(x, CLASSES, CLIENTS, model=model)
    first = task.build_model(1).initial_weights[0][0]
    again = task.build_model(1).initial_weights[0][0]
    other = task.build_model(2).initial_weights[0][0]
    assert first.shape == (3, width)
    one = task.build_model(1)
    models.build_evaluation(one)(one.initial_weights[0], task.validation)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def embedding():
  layers = [keras.layers.Embedding(5, 2), keras.layers.Flatten(), keras.layers.Dense(3)]
  return keras.Sequential([keras.Input([3], dtype=tf.int32), *layers])


def halved():
  return keras.layers.Lambda(lambda x: x / 2)


def test_whole_numbers_reach_an_embedding_as_such():
  task = tasks.from_arrays(RNG.integers(0, 5, (80, 3)), CLASSES, CLIENTS, model=embedding)
  assert task.train.load_all()['x'].dtype == np.int32


def test_a_model_of_the_projects_own_learns_pictures():
  pictures = RNG.random((80, 28, 28, 1))
  task = tasks.from_arrays(pictures, np.arange(80) % 10, CLIENTS, model=mnist.build_cnn)
  assert task.build_model(0).num_parameters == mnist.build_cnn(0).num_parameters


@pytest.mark.parametrize(
  'options, message',
  [
    (dict(model='tree'), "model is 'tree'; choose one of: logistic_regression, mlp"),
    (dict(model=dense(3)()), 'give a function that makes it anew'),
    (dict(model=dense(3, inputs=4)), r'takes inputs of shape \[4\], the data have \[3\]'),
    (dict(model=dense(2)), 'the model has 2 outputs, the data have 3 classes'),
    (dict(model=lambda: 3), "'int' object has no attribute"),
    (dict(model=lambda: keras.Sequential([keras.layers.Dense(3)])), 'does not know its input'),
    (dict(model=lambda a, b, c: 3), "cannot be built: .* missing 1 required .* argument: 'c'"),
    (dict(model=dense(3), y=NUMBERS), r'targets \[B\] and an output \[B, 3\]'),
    (dict(model=lambda seed: 3), 'gave int'),
    (dict(model='mlp', loss='mse'), 'loss and metrics of Keras are for Keras models'),
    (dict(model=dense(1), loss='mse', y=BINARY), 'threshold=, .* 0.0 for scores, 0.5 for prob'),
    (dict(model=dense(3), metrics=['AUC']), 'compares each output with a target of its own'),
    (dict(model=embedding), 'takes x of the dtype int32, which cannot hold the values'),
    (dict(model=lambda: nested(None, halved()), y=BINARY), 'give threshold='),
    (dict(model=by_shape, y=ONE_HOT.astype(int)), 'the labels are one-hot'),
    (dict(model=by_shape, y=2 * ONE_HOT.astype(int)), 'several whole numbers for each example'),
    (dict(y=2 * ONE_HOT.astype(int)), r'targets have shape \(80, '),
  ],
)
def test_models_that_do_not_fit_are_refused(options, message):
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_arrays(X, options.pop('y', CLASSES), CLIENTS, **options)
