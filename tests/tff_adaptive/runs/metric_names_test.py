"""Of which metrics small values are good."""

import re

import pytest
import tensorflow as tf

from tff_adaptive.runs import metric_names

# All of tf.keras.metrics, in snake case; True where small values are good.
KERAS = {
  'auc': False,
  'accuracy': False,
  'binary_accuracy': False,
  'binary_crossentropy': True,
  'binary_focal_crossentropy': True,
  'binary_io_u': False,
  'categorical_accuracy': False,
  'categorical_crossentropy': True,
  'categorical_focal_crossentropy': True,
  'categorical_hinge': True,
  'cosine_similarity': False,
  'f1_score': False,
  'f_beta_score': False,
  'false_negatives': True,
  'false_positives': True,
  'hinge': True,
  'io_u': False,
  'kl_divergence': True,
  'kld': True,
  'kullback_leibler_divergence': True,
  'log_cosh': True,
  'log_cosh_error': True,
  'logcosh': True,
  'mae': True,
  'mape': True,
  'mean': False,
  'mean_absolute_error': True,
  'mean_absolute_percentage_error': True,
  'mean_io_u': False,
  'mean_metric_wrapper': False,
  'mean_relative_error': True,
  'mean_squared_error': True,
  'mean_squared_logarithmic_error': True,
  'mean_tensor': False,
  'metric': False,
  'mse': True,
  'msle': True,
  'one_hot_io_u': False,
  'one_hot_mean_io_u': False,
  'poisson': True,
  'precision': False,
  'precision_at_recall': False,
  'r2_score': False,
  'recall': False,
  'recall_at_precision': False,
  'root_mean_squared_error': True,
  'sensitivity_at_specificity': False,
  'sparse_categorical_accuracy': False,
  'sparse_categorical_crossentropy': True,
  'sparse_top_k_categorical_accuracy': False,
  'specificity_at_sensitivity': False,
  'squared_hinge': True,
  'sum': False,
  'top_k_categorical_accuracy': False,
  'true_negatives': False,
  'true_positives': False,
}
NOT_METRICS = {'deserialize', 'serialize', 'get', 'experimental'}


def snake(name):
  return re.sub(r'([a-z0-9])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])', r'\g<0>_', name).lower()


def test_the_metrics_of_keras_are_all_known():
  names = [name for name in dir(tf.keras.metrics) if name[0] != '_' and name not in NOT_METRICS]
  assert {snake(name) for name in names} == set(KERAS)
  for name in names:  # As classes are named, too, which are columns of those who name them so.
    assert metric_names.is_error(name) == KERAS[snake(name)], name


@pytest.mark.parametrize('name, is_error', KERAS.items())
def test_small_values_of_keras_errors_are_good(name, is_error):
  for column in (name, f'validation_{name}', f'inference_{name}', f'{name}_1', name.upper()):
    assert metric_names.is_error(column) == is_error


@pytest.mark.parametrize(
  'name, is_error',
  [
    *((name, True) for name in ('loss', 'mse', 'mae', 'rmse', 'test_loss', 'validation_mse')),
    *((name, True) for name in ('mean_squared_error', 'error_rate', 'inference_perplexity')),
    *((name, True) for name in ('binary_crossentropy', 'validation_mean_error_of_means')),
    *((name, True) for name in ('MAE', 'RMSE', 'nll', 'logloss', 'valLoss', 'LogCoshError')),
    *((name, True) for name in ('cross_entropy', 'edit-distance', 'false_positive_rate', 'Brier')),
    *((name, True) for name in ('validation_bits_per_character', 'BitsPerDim', 'bpc', 'test_bpd')),
    *((name, False) for name in ('log_likelihood', 'AUC', 'MeanIoU', 'true_positive_rate')),
    *((name, False) for name in ('accuracy', 'validation_accuracy', 'recall_at_5', 'auc')),
    *((name, False) for name in ('lossless_share', 'terror_recall')),
  ],
)
def test_small_values_of_losses_and_errors_are_good(name, is_error):
  assert metric_names.is_error(name) == is_error
