"""The losses of clients at a model, by which rules choose cohorts."""

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tff_adaptive._utils import validation

# (weights, the examples of C clients) -> [C, 2]: mean losses, and means of squared losses.
ClientLosses: TypeAlias = Callable[[Any, Iterable[Mapping[str, np.ndarray]]], np.ndarray]


def build_client_losses(model: Any, batch_size: int = 500) -> ClientLosses:
  """Builds the function that evaluates the losses of clients, for `training.train`.

  Args:
    model: A `models.Model`.
    batch_size: Number of examples evaluated at once, which may come from several clients.

  Returns:
    `(weights, clients) -> float64 [C, 2]`: for each of C clients, given as `OrderedDict(x, y)`, the
    mean of the losses of its examples and the mean of their squares; NaN without examples.

  Raises:
    TypeError: If the model is of another class.
  """
  from tff_adaptive.models import client_evaluation, model as model_lib

  hint = 'give a tff_adaptive.models.Model, or a function of your own'
  validation.instance('model', model, model_lib.Model, hint)

  def squared_loss(predictions: Any, y: Any) -> tuple[Any, None]:
    losses = model.example_loss(predictions, y)
    return losses * losses, None

  # What the evaluation reads of a model, with the squared loss as the only metric.
  losses_only: Any = types.SimpleNamespace(
    initial_weights=model.initial_weights,
    input_spec=model.input_spec,
    forward=model.forward,
    example_loss=model.example_loss,
    couples_examples=model.couples_examples,
    metric_fns={'squared_loss': squared_loss},
    sum_metrics={},
    trained_metric_names=('loss', 'squared_loss'),
    metric_names=('loss', 'squared_loss'),
  )
  evaluate = client_evaluation.build_client_evaluation(losses_only, batch_size)

  def losses(weights: Any, clients: Iterable[Mapping[str, np.ndarray]]) -> np.ndarray:
    sums = evaluate([weights], clients)
    of_clients = np.stack([sums[name][0] for name in losses_only.metric_names], 1)
    # The sums are [clients, 2]: the total, and the number of examples, which may be 0.
    with np.errstate(invalid='ignore', divide='ignore'):
      means: np.ndarray = of_clients[..., 0] / of_clients[..., 1]
    return means

  return losses
