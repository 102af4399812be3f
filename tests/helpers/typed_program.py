"""A user's program that `mypy` reads and nothing runs; a `type: ignore` marks a necessary error."""

import tff_adaptive
import tff_adaptive_tasks as tasks
from tff_adaptive import models, registry, training


def train(task: tasks.Task) -> training.TrainingResult:
  """A task's model trained by an algorithm of the package: each step has a type."""
  model: models.Model = task.build_model(0)
  parameters: int = model.num_parameters
  algorithm: registry.Algorithm = registry.algorithm('ada_best')
  process = tff_adaptive.build_ada_best(
    model,
    client_learning_rate=0.1,
    beta=float(algorithm.default('beta')),
    training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20), seed=parameters),
  )
  evaluation = models.build_evaluation(model)
  return training.train(
    process,
    task.train,
    lambda weights: evaluation(weights, task.validation),
    training.TrainingConfig(rounds=5, clients_per_round=2),
  )


def mistakes(model: models.Model) -> None:
  """What an editor underlines."""
  tff_adaptive.build_fed_yogi(model, client_learning_rate=0.1)  # type: ignore[call-arg]
  tff_adaptive.build_fed_yogi(
    model,
    client_learning_rate='0.1',  # type: ignore[arg-type]
    server_learning_rate=0.1,
  )
  tff_adaptive.build_scaffold(model, client_learning_rate=0.1, num_client=3)  # type: ignore[call-arg]
  training.TrainingConfig(rounds='5', clients_per_round=2)  # type: ignore[arg-type]
  tasks.load(3)  # type: ignore[arg-type]
  registry.algorithm('fed_avg').mu  # type: ignore[attr-defined]  # noqa: B018
  tff_adaptive.Batching(20, shuffle='yes')  # type: ignore[arg-type]
