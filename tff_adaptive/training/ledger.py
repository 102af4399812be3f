"""Makes the rows of a round in the ledger of a run; `runs.ledger` stores them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive.asynchrony import simulation as asynchrony_lib
from tff_adaptive.population import rounds as population_rounds
from tff_adaptive.training.config import TrainingConfig

if TYPE_CHECKING:  # `cohorts` makes the rows here.
  from tff_adaptive.training.cohorts import Cohort


def rows(
  number: int,
  cohort: 'Cohort',
  norms: np.ndarray | None,
  config: TrainingConfig,
  simulation: population_rounds.Simulation | None,
  strengths: np.ndarray,
) -> list[dict[str, Any]]:
  """Returns a row for each client that was drawn.

  Args:
    number: The round.
    cohort: The clients whose updates count.
    norms: The norms of what they sent, in their order; None if unknown.
    config: The run's configuration.
    simulation: The simulation of the population; None without one.
    strengths: The strength of each client's attack, [N]; 0 for honest clients.
  """
  plan = cohort.plan
  steps = _steps(cohort, config)
  bytes_down: int | None = None
  bytes_up: int | None = None
  if config.cost_model is not None:
    bytes_down, bytes_up = config.cost_model.bytes_of_client
  staleness = _staleness(cohort)
  seconds: Sequence[float | None] = [None] * len(steps)
  if simulation is not None and steps and steps[0] is not None:
    seconds = simulation.seconds_of(cohort.positions, steps).tolist()  # type: ignore[arg-type]
  table = []
  for i, client_id in enumerate(cohort.client_ids):
    row: dict[str, Any] = {
      'round': number,
      'client': client_id,
      'outcome': 'counted',
      'examples': cohort.client_examples[i],
      'steps': steps[i],
      'weight': None if cohort.weights is None else cohort.weights[i],
      'loss': None if cohort.losses is None else cohort.losses[i, 0],
      'update_norm': None if norms is None else float(norms[i]),
      'staleness': staleness[i],
      'bytes_down': bytes_down,
      'bytes_up': bytes_up,
      'virtual_seconds': seconds[i],
      'is_attacker': bool(strengths[cohort.positions[i]]),
    }
    table.append(row)
  if plan is None:
    return table
  for position, why in zip(plan.dropped_positions, plan.dropped_why):
    row = {
      'round': number,
      'client': cohort.ids_of_all[position],
      'outcome': why,
      'bytes_down': bytes_down,
      'is_attacker': bool(strengths[position]),
    }
    table.append(row)
  return table


def _steps(cohort: 'Cohort', config: TrainingConfig) -> Sequence[int | None]:
  """Returns the number of local steps of each client; None if nothing counts them."""
  if cohort.client_steps is not None:
    return cohort.client_steps
  if config.cost_model is None:
    return [None] * len(cohort.client_ids)
  return [config.cost_model.local_steps(size) for size in cohort.client_examples]


def _staleness(cohort: 'Cohort') -> Sequence[int | None]:
  """Returns the staleness of each client's update; None in synchronous rounds."""
  if not isinstance(cohort.plan, asynchrony_lib.Arrivals):
    return [None] * len(cohort.client_ids)
  of_position = dict(zip(cohort.plan.positions.tolist(), cohort.plan.staleness.tolist()))
  return [of_position[position] for position in cohort.positions]
