"""What a metric's name says of it: whether small values are good."""

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
  """Whether small values are good, as of 'test_loss', 'mse' and 'LogCoshError'.

  A name with one of the words above is that of an error, and one with a word that ends in 'loss';
  high values of all others are good.

  Args:
    name: A metric's name, or that of a column that has it; its words are divided by '_', other
      signs or capitals.
  """
  words = re.split(r'[\W_]+', _CAMEL.sub('_', name).lower())
  return any(word in _ERRORS or word.endswith('loss') for word in words)
