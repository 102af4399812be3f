"""Makes the rows of a round in the ledger of a run; `runs.ledger` stores them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.asynchrony import simulation as asynchrony_lib
from tff_adaptive.population import rounds as population_rounds
from tff_adaptive.runs import ledger as ledger_lib
from tff_adaptive.training import cohorts
from tff_adaptive.training.config import TrainingConfig


@dataclasses.dataclass
class Rows:
  """Makes the rows of a run's rounds.

  Attributes:
    config: The run's configuration.
    simulation: The simulation of the population; None without one.
    strengths: The strength of each client's attack, [N]; 0 for honest clients.
  """

  config: TrainingConfig
  simulation: population_rounds.Simulation | None
  strengths: np.ndarray

  def of_round(
    self, number: int, cohort: cohorts.Cohort, measured: Mapping[str, np.ndarray]
  ) -> list[dict[str, Any]]:
    """Returns a row for each client that was drawn, with the values that are known by column.

    Args:
      number: The round.
      cohort: The clients whose updates count.
      measured: What the process measured of them, [m] each in their order, by name: columns of the
        ledger, and `is_used` and `diverged`.
    """
    steps = self._steps(cohort)
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    if self.config.cost_model is not None:
      bytes_down, bytes_up = self.config.cost_model.bytes_of_client
      received = {'bytes_down': bytes_down}
      sent = {'bytes_up': bytes_up}
    columns: dict[str, Sequence[Any]] = {'examples': cohort.client_examples}
    if steps is not None:
      columns['steps'] = steps
      if self.simulation is not None:
        columns['virtual_seconds'] = self.simulation.seconds_of(cohort.positions, steps).tolist()
    if cohort.weights is not None:
      columns['weight'] = cohort.weights
    if cohort.losses is not None:
      columns['loss_before'] = cohort.losses[:, 0].tolist()
    for name, values in measured.items():
      # The process measures all columns, with NaN in those that its model or algorithm has not.
      is_known = not np.isnan(values).all()
      if name in ledger_lib.COLUMNS and is_known:
        columns[name] = values.tolist()
    if isinstance(cohort.plan, asynchrony_lib.Arrivals):
      columns['staleness'] = _staleness(cohort, cohort.plan)
    rows = []
    outcomes = _outcomes(len(cohort.positions), measured)
    for i, position in enumerate(cohort.positions):
      row = {**self._of_client(number, cohort, position, outcomes[i]), **received, **sent}
      row.update((name, values[i]) for name, values in columns.items())
      rows.append(row)
    if cohort.plan is not None:
      # They received the model but sent nothing that counts.
      for position, why in zip(cohort.plan.dropped_positions, cohort.plan.dropped_why):
        rows.append({**self._of_client(number, cohort, position, why), **received})
    return rows

  def _of_client(
    self, number: int, cohort: cohorts.Cohort, position: int, outcome: str
  ) -> dict[str, Any]:
    """Returns the columns that every drawn client has."""
    return {
      'round': number,
      'client': cohort.ids_of_all[position],
      'outcome': outcome,
      'is_attacker': bool(self.strengths[position]),
    }

  def _steps(self, cohort: cohorts.Cohort) -> Sequence[int] | None:
    """Returns the number of local steps of each client; None if nothing counts them."""
    if cohort.client_steps is not None:
      return cohort.client_steps
    if self.config.cost_model is None:
      return None
    return [self.config.cost_model.local_steps(size) for size in cohort.client_examples]


def _outcomes(num_clients: int, measured: Mapping[str, np.ndarray]) -> list[str]:
  """Returns for each client that finished what became of its update."""
  if 'is_used' not in measured:
    return ['counted'] * num_clients
  outcomes = []
  for is_used, diverged in zip(measured['is_used'], measured['diverged']):
    if is_used:
      outcomes.append('counted')
    elif diverged:
      outcomes.append('diverged')
    else:
      outcomes.append('empty')
  return outcomes


def _staleness(cohort: cohorts.Cohort, plan: asynchrony_lib.Arrivals) -> list[int]:
  """Returns the staleness of each client's update."""
  of_position = dict(zip(plan.positions.tolist(), plan.staleness.tolist()))
  return [of_position[position] for position in cohort.positions]
