"""Draws the clients of each round and loads their data."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tff_adaptive._utils import client_references, draws, value_text
from tff_adaptive.asynchrony import simulation as asynchrony_lib
from tff_adaptive.client import client_arrays
from tff_adaptive.population import rounds as population_rounds
from tff_adaptive.training import protocols
from tff_adaptive.training.config import TrainingConfig

# A client's id, its number, and (name, value) of each further entry of its data: `max_steps`, say.
DatasetKey: TypeAlias = tuple[str, int, tuple[tuple[str, Any], ...]]

LOADING = threading.Lock()  # Client data need not be safe for loading by several threads.


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one round.

  Attributes:
    client_ids: The clients' ids, in the order of `working_order`.
    data: Each client's arrays, from `client.client_arrays`, or a `ClientReference` to them. They
      have the client's number, which is its position among the ids of all clients.
    client_examples: The number of examples of each client.
    plan: The plan of the round; None in a run without a population.
    client_steps: The number of local steps of each client; None in a run without a population.
  """

  client_ids: Sequence[str]
  data: list[Any]
  client_examples: Sequence[int]
  plan: population_rounds.RoundPlan | None = None
  client_steps: Sequence[int] | None = None

  def check_finite(self) -> None:
    """Raises ValueError, with client, array and row, if a client's data have NaN or infinity."""
    for client_id, (examples,) in zip(self.client_ids, client_references.resolve(self.data)):
      for name in 'x', 'y':
        array = np.asarray(examples[name])
        if array.dtype.kind not in 'fc' or np.isfinite(array).all():
          continue
        at = tuple(np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
          f'the data of client {value_text.in_text(client_id)} are not finite: {name}, row {at[0]},'
          f' has {array[at]}; leave the row or the client out.'
        )


class ClientSource:
  """Loads clients' datasets. A copy of the source in another process loads the same datasets.

  The source can be pickled if `clients` can be.
  """

  def __init__(self, clients: protocols.ClientData, max_examples: int | None):
    """Creates a source of each client's first `max_examples` examples, or all if that is None."""
    self._clients, self._max_examples = clients, max_examples

  def load(self, keys: Sequence[DatasetKey]) -> list[Any]:
    """Returns the result of `client.client_arrays` for each key."""
    found, most = [], self._max_examples
    for client_id, number, more in keys:
      with LOADING:
        arrays = self._clients.load(client_id)
      x, y = arrays['x'][:most], arrays['y'][:most]
      found.append(client_arrays(x, y, number, **dict(more)))
    return found

  def reference(self, key: DatasetKey) -> client_references.ClientReference:
    """Returns a reference to a client's dataset; nothing is loaded."""
    examples = self._clients.num_examples(key[0])
    if self._max_examples is not None:
      examples = min(examples, self._max_examples)
    return client_references.ClientReference(self, key, examples)


def sample(seed: int, round_number: int, num_clients: int, cohort_size: int) -> np.ndarray:
  """Draws a round's clients uniformly, without replacement within the round.

  The draw depends on the arguments only. A resumed run therefore draws the same clients.

  Args:
    seed: The run's seed, >= 0.
    round_number: The round, >= 0.
    num_clients: Number of clients.
    cohort_size: Number of clients to draw, 1 to `num_clients`.

  Returns:
    int64 [cohort_size], positions in [0, num_clients).

  Raises:
    ValueError: If `cohort_size` is out of its range.
  """
  _check_size(cohort_size, num_clients)
  generator = draws.generator(seed, round_number)
  return generator.choice(num_clients, size=cohort_size, replace=False)


def _check_size(cohort_size: int, num_clients: int) -> None:
  if not 1 <= cohort_size <= num_clients:
    raise ValueError(
      f'clients_per_round is {cohort_size}; it must be from 1 to {num_clients}, the number of'
      ' clients there are.'
    )


def working_order(sizes: Sequence[int]) -> list[int]:
  """Returns the order in which clients of these sizes go to an engine that trains a few at once.

  Large clients come early, so that small ones fill the processors at the end. The largest client
  comes fourth: updates are added up in this order, and the first three need not wait for it.

  Returns:
    Positions in `sizes`: the four largest in rising order, then the others in falling order.
  """
  falling = sorted(range(len(sizes)), key=lambda i: -sizes[i])
  return falling[3::-1] + falling[4:]


def simulate(
  config: TrainingConfig, clients: protocols.ClientData
) -> population_rounds.Simulation | None:
  """Returns the simulation of a run's population, or None if `config` has none. Loads no client.

  Raises:
    ValueError: If there are fewer clients than `clients_per_round`, or the population does not fit
      them. A round that lacks available clients, or clients for `over_select`, raises no error.
  """
  _check_size(config.clients_per_round, len(clients.client_ids))
  population, costs = config.population, config.cost_model
  if population is None or costs is None:
    return None
  sizes = [clients.num_examples(client_id) for client_id in clients.client_ids]
  if config.max_examples_per_client is not None:
    sizes = [min(size, config.max_examples_per_client) for size in sizes]
  bytes_down, bytes_up = costs.bytes_of_client
  kind: Any = population_rounds.Simulation
  if config.asynchrony is not None:
    kind = functools.partial(asynchrony_lib.BufferedSimulation, config.asynchrony)
  found: population_rounds.Simulation = kind(
    population,
    clients.client_ids,
    [costs.local_steps(size) for size in sizes],
    seed=config.seed,
    cohort_size=config.clients_per_round,
    bytes_down=bytes_down,
    bytes_up=bytes_up,
    draw=sample,
  )
  return found


def older_models(config: TrainingConfig, clients: protocols.ClientData) -> int:
  """Returns how many older models a run has at a time in memory and in its checkpoints.

  Older models are those from which clients still train when the server has a newer one. The number
  is 0 for synchronous rounds. This function simulates the whole run and loads no client.

  Raises:
    ValueError: See `simulate`.
  """
  return most_older_models(simulate(config, clients), config.rounds)


def most_older_models(simulation: population_rounds.Simulation | None, num_rounds: int) -> int:
  """Returns the number of `older_models` of a simulated run."""
  if isinstance(simulation, asynchrony_lib.BufferedSimulation):
    return simulation.most_older_models(num_rounds)
  return 0


class CohortLoader:
  """Loads the cohort of each round, in the background while the round before it trains.

  Attributes:
    source: The source of the clients' data.
    by_reference: Whether cohorts have references to clients' data, which are then not loaded here.
    loads_ahead: Whether a cohort may be loaded before `take` asks for it.
  """

  def __init__(
    self,
    clients: Any,
    config: TrainingConfig,
    simulation: population_rounds.Simulation | None = None,
  ):
    """Creates the loader.

    Args:
      clients: All clients, a `protocols.ClientData`.
      config: The run's configuration. If it `limits_steps`, clients' data have `max_steps`.
      simulation: The simulation of the population. With None all clients are available and finish.

    Raises:
      ValueError: If a client's id occurs twice.
    """
    self.source = ClientSource(clients, config.max_examples_per_client)
    self.by_reference = False
    self.loads_ahead = True
    self._clients, self._ids = clients, clients.client_ids
    self._config, self._simulation = config, simulation
    is_rising = all(a < b for a, b in itertools.pairwise(self._ids))  # Then no set is needed.
    if not is_rising and len(set(self._ids)) < len(self._ids):
      twice, _ = collections.Counter(self._ids).most_common(1)[0]
      raise ValueError(
        f'the client {value_text.in_text(twice)} is in client_ids more than once: give each client'
        ' once.'
      )
    self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='cohort')
    self._ahead: dict[int, concurrent.futures.Future] = {}

  def take(self, round_number: int) -> Cohort:
    """Returns the cohort of a round. If `loads_ahead`, starts loading the next round's."""
    future = self._ahead.pop(round_number, None) or self._pool.submit(self._load, round_number)
    cohort = future.result()
    if self.loads_ahead and round_number < self._config.rounds:
      self._ahead = {round_number + 1: self._pool.submit(self._load, round_number + 1)}
    return cohort

  def without_examples(self) -> Any:
    """Returns the data of a client without examples."""
    more = (('max_steps', 0),) if self._config.limits_steps else ()
    key = (self._ids[0], 0, more)
    return ClientSource(self._clients, 0).load([key])[0]

  def close(self) -> None:
    """Ends the background thread."""
    self._pool.shutdown(wait=True, cancel_futures=True)

  def _load(self, round_number: int) -> Cohort:
    plan: Any = None
    steps: Any = None
    if self._simulation is None:
      seed, size = self._config.seed, self._config.clients_per_round
      positions = sample(seed, round_number, len(self._ids), size)
    else:
      plan = self._simulation.plan(round_number)
      positions, steps = plan.positions, plan.steps
    more: list[dict[str, Any]] = [{} for _ in positions]
    for i, own in enumerate(more):
      if self._config.limits_steps and steps is not None:
        own['max_steps'] = int(steps[i])
      if isinstance(plan, asynchrony_lib.Arrivals) and self._config.asynchrony is not None:
        own.update(plan.of_client(i, self._config.asynchrony))
    keys = [(self._ids[i], int(i), tuple(own.items())) for i, own in zip(positions, more)]
    data: list[Any]
    if self.by_reference:
      data = [self.source.reference(key) for key in keys]
      sizes = [reference.num_examples for reference in data]
    else:
      data = self.source.load(keys)
      sizes = [len(elements[0]['y']) for elements in data]
    order = working_order(sizes)
    return Cohort(
      client_ids=tuple(keys[i][0] for i in order),
      data=[data[i] for i in order],  # TFF's native context wants a list.
      client_examples=[sizes[i] for i in order],
      plan=plan,
      client_steps=None if steps is None else [int(steps[i]) for i in order],
    )
