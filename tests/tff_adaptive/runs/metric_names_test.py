"""Of which metrics small values are good."""

import re

import pytest
import tensorflow as tf

from tff_adaptive.runs import metric_names

# All of tf.keras.metrics: those of which small values are good, and the others.
ERRORS = """
  BinaryCrossentropy CategoricalCrossentropy
  CategoricalHinge FalseNegatives FalsePositives Hinge KLD KLDivergence LogCoshError MAE
  MAPE MSE MSLE MeanAbsoluteError MeanAbsolutePercentageError MeanRelativeError MeanSquaredError
  MeanSquaredLogarithmicError Poisson RootMeanSquaredError SparseCategoricalCrossentropy
  SquaredHinge binary_crossentropy binary_focal_crossentropy categorical_crossentropy
  categorical_focal_crossentropy hinge kl_divergence kld kullback_leibler_divergence log_cosh
  logcosh mae mape mean_absolute_error mean_absolute_percentage_error mean_squared_error
  mean_squared_logarithmic_error mse msle poisson sparse_categorical_crossentropy squared_hinge
"""
OTHERS = """
  AUC Accuracy BinaryAccuracy BinaryIoU CategoricalAccuracy CosineSimilarity F1Score FBetaScore IoU
  Mean MeanIoU MeanMetricWrapper MeanTensor Metric OneHotIoU OneHotMeanIoU Precision
  PrecisionAtRecall R2Score Recall RecallAtPrecision SensitivityAtSpecificity
  SparseCategoricalAccuracy SparseTopKCategoricalAccuracy SpecificityAtSensitivity Sum
  TopKCategoricalAccuracy TrueNegatives TruePositives binary_accuracy categorical_accuracy
  sparse_categorical_accuracy sparse_top_k_categorical_accuracy top_k_categorical_accuracy
"""
NOT_METRICS = {'deserialize', 'serialize', 'get', 'experimental'}


def snake(name):
  return re.sub(r'([a-z0-9])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])', r'\g<0>_', name).lower()


def test_the_metrics_of_keras_are_all_known():
  names = {name for name in dir(tf.keras.metrics) if name[0] != '_'} - NOT_METRICS
  assert names == {*ERRORS.split(), *OTHERS.split()}
  for name in names:
    for column in (name, snake(name), f'validation_{snake(name)}', f'{snake(name)}_1'):
      assert metric_names.is_error(column) == (name in ERRORS.split()), column


@pytest.mark.parametrize(
  'names, is_error',
  [
    ('loss mse rmse test_loss validation_mse error_rate inference_perplexity MAE RMSE nll', True),
    ('logloss valLoss cross_entropy edit-distance false_positive_rate Brier bpc test_bpd', True),
    ('validation_bits_per_character BitsPerDim validation_mean_error_of_means', True),
    ('log_likelihood true_positive_rate accuracy validation_accuracy recall_at_5 auc', False),
    ('lossless_share terror_recall', False),
  ],
)
def test_small_values_of_losses_and_errors_are_good(names, is_error):
  for name in names.split():
    assert metric_names.is_error(name) == is_error, name
