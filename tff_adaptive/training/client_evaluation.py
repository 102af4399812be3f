"""Evaluates models on each client of some groups, such as training clients and unseen clients."""

import concurrent.futures as futures
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive._utils import draws
from tff_adaptive.devices import threads
from tff_adaptive.reports import client_distribution, report
from tff_adaptive.training import cohorts, protocols, rounds

if TYPE_CHECKING:  # These imports load TFF, which a process that is not TFF's does not need.
  from tff_adaptive import models
  from tff_adaptive.training.personalization import Personalize

FOLDER = client_distribution.FOLDER
PERSONALIZED = 'personalized'
OWN = 'own'
LOCAL = 'local'


@dataclasses.dataclass(frozen=True)
class Group:
  """A group of clients that is evaluated.

  Attributes:
    clients: An object with `client_ids`, and `load(client_id)` for the examples to evaluate on.
    fine_tuned_on: The same clients with the examples to fine-tune on; None for no fine-tuning.
    max_examples: A client is evaluated on at most this many of its first examples; None means all.
    max_tuning_examples: The same limit for a client's examples in `fine_tuned_on`.
  """

  clients: protocols.ClientData
  fine_tuned_on: protocols.ClientData | None = None
  max_examples: int | None = None
  max_tuning_examples: int | None = None


@dataclasses.dataclass(frozen=True)
class ClientReport:
  """The results of an evaluation on each client.

  Attributes:
    columns: Values by name, `clients_GROUP_METRIC_STATISTIC`: the name of a group, a metric, and
      one of `client_distribution.STATISTICS`. METRIC begins with `inference_` if the state's
      `inference_weights` are evaluated, with `personalized_` if the model was fine-tuned, and with
      `own_` if it is the client's own, or with `local_` if each client trained alone.
    table: CSV text with a heading and a line for each client of each group.
  """

  columns: dict[str, float]
  table: str


class ClientEvaluation:
  """An evaluation of a run's models on each client of one or more groups."""

  def __init__(
    self,
    model: 'models.Model',
    groups: Mapping[str, Group],
    *,
    rounds_per_evaluation: int,
    most_clients: int | None = None,
    personalize: 'Personalize | None' = None,
    train_alone: 'Personalize | None' = None,
    seed: int = 0,
    batch_size: int = 500,
  ):
    """Creates the evaluation.

    Args:
      model: The model.
      groups: The groups of clients by name.
      rounds_per_evaluation: The number of rounds between evaluations, >= 1. Round 0 and the last
        round are evaluated too.
      most_clients: The largest number of clients to evaluate in a group, chosen once; None for all.
      personalize: A function that fine-tunes, from `build_personalization`; None for no tuning.
      train_alone: A function like `personalize` by which each client trains alone, from the model's
        initial weights: a baseline without federation, which is computed once. None for none.
      seed: The seed by which `most_clients` clients are chosen, >= 0.
      batch_size: The number of examples that are evaluated at once.
    """
    self._metrics = model.metric_names
    from tff_adaptive.models import client_evaluation

    self._evaluate = client_evaluation.build_client_evaluation(model, batch_size)
    self._groups = groups
    self._every = rounds_per_evaluation
    self._personalize = personalize
    self._train_alone = train_alone
    self._of_local: dict[str, dict[str, np.ndarray]] = {}  # By group.
    self._model = model
    self._ids = {
      name: _choose(group.clients.client_ids, most_clients, seed) for name, group in groups.items()
    }

  def is_due(self, number: int, last: int) -> bool:
    """Returns whether round `number` of a run of `last` rounds is evaluated."""
    return number % self._every == 0 or number == last

  def evaluate(
    self, state: Any, number: int, own_models: Callable[[str], Any] | None = None
  ) -> ClientReport:
    """Evaluates the models of a server state on each client.

    Args:
      state: A server state. If it has `inference_weights`, they are evaluated too.
      number: The number of rounds done.
      own_models: A function from a client's id to the trainable weights of its own model; None if
        clients have no models.
    """
    weight_sets = {'': rounds.trainable(state.global_model_weights)}
    if inference := getattr(state, 'inference_weights', None):
      weight_sets['inference'] = rounds.trainable(inference)
    columns: dict[str, float] = {}
    lines: list[dict[str, Any]] = []
    for name, group in self._groups.items():
      ids = self._ids[name]
      of_group: list[dict[str, Any]] = []
      loaded = _loaded(name, group, ids, of_group)
      # `_loaded` fills `of_group` while the evaluation reads its examples.
      sums = self._evaluate(list(weight_sets.values()), loaded)
      by_model: dict[str, dict[str, np.ndarray]] = {}
      for i, model in enumerate(weight_sets):
        by_model[model] = {metric: sums[metric][i] for metric in self._metrics}
      if group.fine_tuned_on is not None:
        if self._personalize is not None:
          weights = list(weight_sets.values())[-1]  # Those for inference, if there are any.
          by_model[PERSONALIZED] = self._tuned(self._personalize, weights, group, ids, number)
        if self._train_alone is not None:
          by_model[LOCAL] = self._alone(name, group, ids)
      if own_models is not None:
        by_model[OWN] = self._own(own_models, group, ids)
      for model, of_model in by_model.items():
        for metric, of_clients in of_model.items():  # float64 [clients, sums]
          column = '_'.join(filter(None, (model, metric)))
          values = self._model.metric_value(metric, of_clients)
          pooled = float(self._model.metric_value(metric, of_clients.sum(0)))
          statistics = client_distribution.describe_values(values, metric, pooled)
          for statistic, value in statistics.items():
            columns[f'clients_{name}_{column}_{statistic}'] = value
          for line, value in zip(of_group, values):
            # By `repr`, so that reading the table gives the same bits.
            line[column] = repr(float(value))
      lines += of_group
    import pandas as pd  # Slow to import and needed here only.

    return ClientReport(columns, pd.DataFrame(lines).to_csv(index=False))

  def _own(
    self, own_models: Callable[[str], Any], group: Group, ids: Sequence[str]
  ) -> dict[str, np.ndarray]:
    """Evaluates each client's own model. Returns the sums of each metric, [clients, sums]."""
    of_clients = []
    for client_id in ids:  # One after another: the clients' states are for one thread.
      with cohorts.LOADING:
        examples = _first(group.clients.load(client_id), group.max_examples)
      of_clients.append(self._evaluate([own_models(client_id)], [examples]))
    return self._stacked(of_clients)

  def _stacked(self, of_clients: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns [clients, sums] by metric from evaluations of one model on one client each."""
    by_metric = {}
    for metric in self._metrics:
      by_metric[metric] = np.stack([of_client[metric][0, 0] for of_client in of_clients])
    return by_metric

  def _alone(self, name: str, group: Group, ids: Sequence[str]) -> dict[str, np.ndarray]:
    """Trains each client alone, once. Returns the sums of each metric, [clients, sums]."""
    assert self._train_alone is not None
    if name not in self._of_local:
      weights = self._model.initial_weights[0]
      self._of_local[name] = self._tuned(self._train_alone, weights, group, ids, 0)
    return self._of_local[name]

  def _tuned(
    self, tune: 'Personalize', weights: Any, group: Group, ids: Sequence[str], number: int
  ) -> dict[str, np.ndarray]:
    """Fine-tunes on each client. Returns the sums of each metric, [clients, sums]."""
    tuning = group.fine_tuned_on
    assert tuning is not None
    # By its place among all clients, so that the order of a client's examples does not depend on
    # which clients are evaluated.
    positions = {client_id: i for i, client_id in enumerate(tuning.client_ids)}

    def sums(client_id: str) -> dict[str, np.ndarray]:
      with cohorts.LOADING:
        examples = _first(tuning.load(client_id), group.max_tuning_examples)
        heldout = _first(group.clients.load(client_id), group.max_examples)
      tuned = tune(weights, examples, positions[client_id], number)
      return self._evaluate([tuned], [heldout])

    with futures.ThreadPoolExecutor(threads.side_by_side()) as pool:
      return self._stacked(list(pool.map(sums, ids)))


def _loaded(
  name: str, group: Group, ids: Sequence[str], lines: list[dict[str, Any]]
) -> Iterator[dict[str, np.ndarray]]:
  """Yields each client's examples, and appends the client's line of the table to `lines`."""
  for client_id in ids:
    with cohorts.LOADING:
      arrays = _first(group.clients.load(client_id), group.max_examples)
    lines.append({'group': name, 'client': report.cell(client_id), 'examples': len(arrays['y'])})
    yield arrays


def _choose(ids: Sequence[str], most: int | None, seed: int) -> list[str]:
  """Returns at most `most` ids in their order; the choice depends on the arguments only."""
  if most is None or most >= len(ids):
    return list(ids)
  generator = draws.generator(seed, draws.EVALUATED_CLIENTS)
  return [ids[i] for i in sorted(generator.choice(len(ids), most, replace=False))]


def _first(arrays: Mapping[str, Any], most: int | None) -> dict[str, Any]:
  return {name: array[:most] for name, array in arrays.items()}
