"""Small runs on unlike clients, for the experiments on cohorts and on robust rules."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import frame

MNIST = 'MNIST, 300 clients'
DIGITS = 'scikit-learn digits, 50 clients'
FILES: Mapping[str, tuple[str, ...]] = {MNIST: frame.MNIST, DIGITS: ()}
# Title -> the task, and its clients; one in eleven is held out by the task and takes no part.
_TASKS = {MNIST: ('mnist_skewed', 330), DIGITS: ('digits_skewed', 55)}
_HIDDEN = 50
BATCH_SIZE = 20
MOST_EXAMPLES = 60  # Of a client, so that a run takes seconds.
CLIENT_RATE = 0.1


@dataclasses.dataclass(frozen=True)
class Problem:
  """A task with its model and its evaluation on test data."""

  task: Any
  model: Any
  evaluate: Any


def load(problem: str, data_dir: str | None, alpha: float, seed: int) -> Problem:
  """Loads a problem whose clients differ by a Dirichlet distribution of labels.

  Args:
    problem: `MNIST` or `DIGITS`.
    data_dir: The folder with MNIST.
    alpha: The concentration; inf for clients that are alike.
    seed: The seed of the partition and of the model.
  """
  import tff_adaptive_tasks as tasks
  from tff_adaptive import models
  from tff_adaptive_tasks.models import layers

  name, num_clients = _TASKS[problem]
  task = tasks.load(
    name,
    data_dir=data_dir,
    seed=seed,
    num_clients=num_clients,
    alpha=alpha,
    validation='test',
  )
  shape = task.validation['x'].shape[1:]
  model = layers.perceptron(seed, [int(np.prod(shape)), _HIDDEN, 10], shape)
  evaluation = models.build_evaluation(model)
  return Problem(task, model, lambda weights: evaluation(weights, task.validation))


def build_process(model: Any, seed: int, aggregator: Any = None, **training: Any) -> Any:
  """Builds FedAvg in which all clients count the same; `training` goes to `ClientTraining`."""
  from tff_adaptive import algorithms, client

  how = client.ClientTraining(batching=client.Batching(BATCH_SIZE), seed=seed, **training)
  return algorithms.build_fed_avg(
    model,
    client_learning_rate=CLIENT_RATE,
    training=how,
    aggregator=aggregator,
    client_weighting='uniform',
  )


def cost_model(model: Any) -> Any:
  """Returns the costs of FedAvg with this model, which the virtual clock needs."""
  from tff_adaptive import costs, registry

  return costs.CostModel(registry.Counts(), model.num_parameters, BATCH_SIZE)


def run(problem: Problem, process: Any, config: Any, **more: Any) -> list[dict[str, Any]]:
  """Trains, and returns the rows of metrics.csv; they end early if the model diverges."""
  from tff_adaptive import runs, training

  rows: list[dict[str, Any]] = []

  class Rows(training.Callback):
    def round_end(self, row: Mapping[str, Any]) -> None:
      rows.append(dict(row))

  try:
    training.train(
      process,
      problem.task.train,
      problem.evaluate,
      config,
      callbacks=[Rows()],
      show_progress=False,
      **more,
    )
  except runs.NonFiniteWeightsError:
    rows.append(collections.OrderedDict(validation_accuracy=np.nan))
  return rows


def last_accuracy(rows: list[dict[str, Any]]) -> float:
  """Returns the accuracy of the last evaluation; NaN if the model diverged."""
  values = [row['validation_accuracy'] for row in rows if 'validation_accuracy' in row]
  return float(values[-1])
