"""Says from a metric's name whether small values are good, as metrics.csv has nothing but names."""

import re

_ERRORS = frozenset(
  {
    *('loss', 'losses', 'error', 'errors', 'err', 'false', 'misclassification'),
    *('mse', 'rmse', 'msle', 'rmsle', 'mae', 'mape', 'smape'),
    *('bits', 'nats', 'bpc', 'bpd', 'bpb', 'bpw', 'bpt'),  # Per character, dimension, byte, ...
    *('perplexity', 'perplexities', 'ppl', 'entropy', 'crossentropy', 'xent', 'nll'),
    *('hinge', 'huber', 'logcosh', 'cosh', 'poisson', 'brier', 'deviance', 'pinball'),
    *('divergence', 'kl', 'kld', 'distance', 'distances', 'residual', 'residuals', 'regret'),
    *('cost', 'penalty', 'risk', 'ece', 'wer', 'cer', 'eer', 'fpr', 'fnr', 'hamming'),
  }
)
_CAMEL = re.compile(r'(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])')


def is_error(name: str) -> bool:
  """Returns whether small values of a metric are good, as for 'test_loss' and 'LogCoshError'.

  Such a name has a word like 'error', 'mse' or 'perplexity', or a word that ends in 'loss'. High
  values of all other metrics are good.

  Args:
    name: The name of a metric or a column. '_', other signs and capital letters separate its words.
  """
  # What follows 'at' is a condition and no error: tpr_at_fpr_0.01 is good if it is high.
  words = '_'.join(re.split(r'[\W_]+', _CAMEL.sub('_', name).lower())).partition('_at_')[0]
  is_of_likelihood = re.search('neg(ative)?_?log_?lik', words)
  return bool(is_of_likelihood) or any(w in _ERRORS or w.endswith('loss') for w in words.split('_'))
