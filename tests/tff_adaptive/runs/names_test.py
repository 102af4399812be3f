"""Of which metrics small values are good."""

import re

import pytest
import tensorflow as tf

from tff_adaptive.runs import names

# Those of tf.keras.metrics of which small values are good; a function may have the class's name.
ERRORS = """
  BinaryCrossentropy CategoricalCrossentropy SparseCategoricalCrossentropy CategoricalHinge Hinge
  SquaredHinge FalseNegatives FalsePositives KLD KLDivergence LogCoshError MAE MAPE MSE MSLE Poisson
  MeanAbsoluteError MeanAbsolutePercentageError MeanRelativeError MeanSquaredError
  MeanSquaredLogarithmicError RootMeanSquaredError binary_focal_crossentropy log_cosh logcosh
  categorical_focal_crossentropy kullback_leibler_divergence
"""
NOT_METRICS = {'deserialize', 'serialize', 'get', 'experimental'}


def snake(name):
  return re.sub(r'([a-z0-9])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])', r'\g<0>_', name).lower()


def test_the_metrics_of_keras_are_all_known():
  metrics_of_keras = {name for name in dir(tf.keras.metrics) if name[0] != '_'} - NOT_METRICS
  assert metrics_of_keras > set(ERRORS.split())
  errors = {snake(name) for name in ERRORS.split()}
  for name in metrics_of_keras:
    for column in (name, snake(name), f'validation_{snake(name)}', f'{snake(name)}_1'):
      assert names.is_error(column) == (snake(name) in errors), column


NAMES = ('algorithm', 'server_optimizer', 'client_optimizer', 'client_optimizer_state', 'sam_rho')


@pytest.mark.parametrize(
  'values, wanted',
  [
    (('fed_avg', None, 'sgd', 'reset', None), 'FedAvg'),
    (('fed_avg', 'lion', 'adamw', None, None), 'FedAvg x Lion (clients: AdamW)'),
    (('fed_yogi', None, 'a/b.py:f', 'keep', None), 'FedYogi (clients: b.py:f, kept)'),
    (('diloco', 'nesterov', 'adamw', 'keep', 0.1), 'DiLoCo (clients: SAM 0.1)'),
    (('fed_sam', 'sgd', None, None, 0.05), 'FedSAM'),
  ],
)
def test_a_composition_names_what_goes_not_without_saying(values, wanted):
  settings = {name: value for name, value in zip(NAMES, values) if value is not None}
  assert names.composition(settings) == wanted


@pytest.mark.parametrize(
  'columns, is_error',
  [
    ('loss mse rmse test_loss validation_mse error_rate inference_perplexity MAE RMSE nll', True),
    ('logloss valLoss cross_entropy edit-distance false_positive_rate Brier bpc test_bpd', True),
    ('negative_log_likelihood BitsPerDim validation_mean_error_of_means loss_at_5', True),
    ('log_likelihood true_positive_rate accuracy validation_accuracy recall_at_5 auc', False),
    ('lossless_share terror_recall tpr_at_fpr_0.01', False),
  ],
)
def test_small_values_of_losses_and_errors_are_good(columns, is_error):
  for name in columns.split():
    assert names.is_error(name) == is_error, name
