"""Draws the clients of each round and loads their data."""

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import client_references, draws, suggestions, value_text
from tff_adaptive.asynchrony import simulation as asynchrony_lib
from tff_adaptive.client import entries
from tff_adaptive.population import choosing, rounds as population_rounds
from tff_adaptive.training import (
  client_losses as client_losses_lib,
  protocols,
  selection,
)
from tff_adaptive.training.client_source import (
  LOADING as LOADING,
  ClientSource as ClientSource,
)
from tff_adaptive.training.config import TrainingConfig


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
    choice: The clients that were chosen, some of which may not have finished.
    positions: The position of each client among the ids of all.
    weights: The factor of each client's update; None if the rule gives no weights.
    losses: The mean loss of each client before it trains, and the mean of its squared losses,
      float64 [clients, 2]; None if the rule does not need them.
    ids_of_all: The ids of all clients.
  """

  client_ids: Sequence[str]
  data: list[Any]
  client_examples: Sequence[int]
  plan: population_rounds.RoundPlan | None = None
  client_steps: Sequence[int] | None = None
  choice: choosing.Choice | None = None
  positions: Sequence[int] = ()
  weights: Sequence[float] | None = None
  losses: np.ndarray | None = None
  ids_of_all: Sequence[str] = ()

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


def check_traced(name: str, client_id: str, ids: Sequence[str]) -> None:
  """Raises ValueError if there is no client with the id that `name` has."""
  if client_id in set(ids):
    return
  close = suggestions.nearest(client_id, ids) or [str(ids[0])]
  raise ValueError(
    f'{name}: there is no client {value_text.in_text(client_id)}; give one of the {len(ids)} ids,'
    f' such as {" or ".join(close)}.'
  )


def working_order(sizes: Sequence[int]) -> list[int]:
  """Returns the order in which clients of these sizes go to an engine that trains a few at once.

  Large clients come early, so that small ones fill the processors at the end. The largest client
  comes fourth: updates are added up in this order, and the first three need not wait for it.

  Returns:
    Positions in `sizes`: the four largest in rising order, then the others in falling order.
  """
  # The sort is stable: clients of one size stay in the order in which they were drawn.
  falling = sorted(range(len(sizes)), key=lambda i: -sizes[i])
  return falling[3::-1] + falling[4:]


def simulate(
  config: TrainingConfig,
  clients: protocols.ClientData,
  choose: population_rounds.Choose | None = None,
) -> population_rounds.Simulation | None:
  """Returns the simulation of a run's population, or None if `config` has none. Loads no client.

  Args:
    config: The run's configuration.
    clients: All clients.
    choose: A function that chooses the clients of a round; None draws them uniformly.

  Raises:
    ValueError: If there are fewer clients than `clients_per_round`, or the population does not fit
      them. A round that lacks available clients, or clients for `over_select`, raises no error.
  """
  _check_size(config.clients_per_round, len(clients.client_ids))
  population = config.population
  costs = config.cost_model
  if population is None or costs is None:
    return None
  source = ClientSource(clients, config.max_examples_per_client)
  sizes = [source.num_examples(client_id) for client_id in clients.client_ids]
  bytes_down, bytes_up = costs.bytes_of_client
  steps = [costs.local_steps(size) for size in sizes]
  settings: dict[str, Any] = {
    'seed': config.seed,
    'cohort_size': config.clients_per_round,
    'bytes_down': bytes_down,
    'bytes_up': bytes_up,
    'draw': sample,
  }
  if config.asynchrony is not None:
    return asynchrony_lib.BufferedSimulation(
      config.asynchrony, population, clients.client_ids, steps, **settings
    )
  return population_rounds.Simulation(
    population,
    clients.client_ids,
    steps,
    choose=choose,
    evaluation_steps=[costs.batches(size) for size in sizes],
    **settings,
  )


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
    num_examples: The number of examples that each client trains on, int64 [N]; only zeros if the
      run has no rule for cohorts.
    strengths: The strength of each client's attack, float32 [N]; 0 for honest clients.
    selector: What chooses the clients.
    simulation: The simulation of the population; None if all clients are available and finish.
  """

  def __init__(
    self,
    clients: Any,
    config: TrainingConfig,
    client_losses: client_losses_lib.ClientLosses | None = None,
  ):
    """Creates the loader.

    Args:
      clients: All clients, a `protocols.ClientData`.
      config: The run's configuration. If it `limits_steps`, clients' data have `max_steps`; if its
        `cohort` gives weights, they have `cohort_weight`.
      client_losses: A function that evaluates losses, if the rule of `config.cohort` needs it.

    Raises:
      ValueError: If a client's id occurs twice, or `simulate` or `selection.Selector` refuse.
    """
    self.source = ClientSource(
      clients, config.max_examples_per_client, config.attackers, config.seed
    )
    self.by_reference = False
    self._clients = clients
    self._ids = clients.client_ids
    self._config = config
    self._check_ids()
    self._check_traced()
    size = len(self._ids)
    self.num_examples = np.zeros(size, np.int64)
    if config.cohort is not None:
      sizes = [self.source.num_examples(client_id) for client_id in self._ids]
      self.num_examples = np.array(sizes, np.int64)
    known = choosing.Known(self._ids, self.num_examples, np.zeros(size))
    self.selector = selection.Selector(config, known, self._examples, client_losses)
    choose: population_rounds.Choose | None = None
    if config.cohort is not None:
      choose = self.selector.choose
    self.simulation = simulate(config, clients, choose)
    if self.simulation is not None:
      known.seconds = self.simulation.seconds
    self._clock = 0.0  # The virtual seconds of the rounds done.
    self.loads_ahead = not self.selector.waits
    self.strengths = np.zeros(size, np.float32)
    if config.attackers is not None:
      self.strengths[config.attackers.positions(size, config.seed)] = config.attackers.strength
    self._everybody = np.arange(size)
    # One thread, so that rounds are planned in their order, which the simulation goes through.
    self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='cohort')
    self._ahead: dict[int, concurrent.futures.Future] = {}

  def take(self, round_number: int, weights: Any = None) -> Cohort:
    """Returns the cohort of a round. If `loads_ahead`, starts loading the next round's.

    Args:
      round_number: The round, from 1.
      weights: The weights of the model before the round, for rules that look at losses.
    """
    future = self._ahead.pop(round_number, None)
    if future is None:
      self.selector.weights = weights
      future = self._pool.submit(self._load, round_number)
    cohort = future.result()
    if self.loads_ahead and round_number < self._config.rounds:
      self._ahead = {round_number + 1: self._pool.submit(self._load, round_number + 1)}
    return cohort

  def observe(self, number: int, cohort: Cohort, norms: np.ndarray | None) -> None:
    """Tells the rule what a round showed of its clients; `norms` are those of their updates."""
    if not self.selector.waits:
      return
    if norms is not None and cohort.weights is not None:
      with np.errstate(divide='ignore', invalid='ignore'):
        norms = norms / np.array(cohort.weights, np.float32)  # Of the updates themselves.
    self.selector.observe(number, cohort.positions, cohort.losses, norms)

  def count_attackers(self, cohort: Cohort) -> int:
    """Returns the number of attackers in a cohort."""
    return int(np.count_nonzero(self.strengths[list(cohort.positions)]))

  def commit(self) -> None:
    """Notes what the last round showed. Until then a checkpoint has that of the round before."""
    self.selector.commit()
    if self.simulation is not None:
      self._clock = self.simulation.clock

  def record(self) -> dict[str, Any]:
    """Returns what a resumed run needs of the cohorts so far; {} if they follow from the seed."""
    if not self.selector.waits:
      return {}
    return {'cohort': {**self.selector.record(), 'clock': self._clock}}

  def restore(self, metadata: Mapping[str, Any], round_number: int) -> None:
    """Continues after a round, from the metadata of its checkpoint."""
    recorded = metadata.get('cohort')
    if not self.selector.waits or recorded is None:
      return
    self.selector.restore(recorded)
    self._clock = recorded['clock']
    if self.simulation is not None:
      self.simulation.continue_from(round_number, self._clock)

  def without_examples(self) -> Any:
    """Returns the data of a client without examples."""
    more: tuple[tuple[str, Any], ...] = ()
    if self._config.limits_steps:
      more += (('max_steps', 0),)
    if self._config.attack_on_updates is not None:
      more += ((entries.ATTACK, np.float32(0)),)
    if self._config.weighs_cohorts:
      more += ((entries.COHORT_WEIGHT, np.float32(0)),)
    # Of a client whose arrays have the right shapes and dtypes, at most 0 examples.
    key = (self._ids[0], 0, more)
    return ClientSource(self._clients, 0).load([key])[0]

  def close(self) -> None:
    """Ends the background thread."""
    self._pool.shutdown(wait=True, cancel_futures=True)

  def _check_traced(self) -> None:
    """Raises ValueError if there is no client whose id is `trace_client`."""
    traced = self._config.trace_client
    if traced is not None:
      check_traced('trace_client', traced, self._ids)

  def _check_ids(self) -> None:
    """Raises ValueError if a client's id occurs twice."""
    is_rising = all(a < b for a, b in itertools.pairwise(self._ids))  # Then no set is needed.
    if not is_rising and len(set(self._ids)) < len(self._ids):
      twice, _ = collections.Counter(self._ids).most_common(1)[0]
      raise ValueError(
        f'the client {value_text.in_text(twice)} is in client_ids more than once: give each client'
        ' once.'
      )

  def _examples(self, positions: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """Yields the examples of the clients at some positions."""
    for position in positions:
      yield self.source.examples(self._ids[position])

  def _plan(
    self, round_number: int
  ) -> tuple[choosing.Choice | None, population_rounds.RoundPlan | None]:
    """Returns the chosen clients, and the plan of the round in a run with a population."""
    if self.simulation is None:
      size = self._config.clients_per_round
      return self.selector.choose(round_number, self._everybody, size), None
    plan = self.simulation.plan(round_number)
    return plan.choice, plan

  def _load(self, round_number: int) -> Cohort:
    choice, plan = self._plan(round_number)
    steps: Any = None
    if plan is not None:
      positions = plan.positions
      steps = plan.steps
    else:
      assert choice is not None
      positions = choice.positions
    factors = _factors(choice, positions, self.num_examples)
    keys = []
    for i, position in enumerate(positions):
      more = self._entries(i, int(position), plan, factors)
      keys.append((self._ids[position], int(position), tuple(more.items())))
    data: list[Any]
    if self.by_reference:
      data = [self.source.reference(key) for key in keys]
      sizes = [reference.num_examples for reference in data]
    else:
      data = self.source.load(keys)
      sizes = [len(elements[0]['y']) for elements in data]
    order = working_order(sizes)
    ordered = [int(positions[i]) for i in order]
    losses = None
    # At the weights before the round, which `take` has set: such a rule loads nothing ahead.
    if 'train_losses' in self.selector.needs:
      losses = self.selector.losses(ordered)
    client_steps = None
    if steps is not None:
      client_steps = [int(steps[i]) for i in order]
    weights = None
    if factors is not None:
      weights = [float(factors[i]) for i in order]
    return Cohort(
      client_ids=tuple(keys[i][0] for i in order),
      data=[data[i] for i in order],  # TFF's native context wants a list.
      client_examples=[sizes[i] for i in order],
      plan=plan,
      client_steps=client_steps,
      choice=choice,
      positions=ordered,
      weights=weights,
      losses=losses,
      ids_of_all=self._ids,
    )

  def _entries(
    self,
    i: int,
    position: int,
    plan: population_rounds.RoundPlan | None,
    factors: np.ndarray | None,
  ) -> dict[str, Any]:
    """Returns the entries that the data of the round's i-th client have in addition."""
    more: dict[str, Any] = {}
    if self._config.limits_steps and plan is not None:
      more['max_steps'] = int(plan.steps[i])
    if isinstance(plan, asynchrony_lib.Arrivals) and self._config.asynchrony is not None:
      more.update(plan.of_client(i, self._config.asynchrony))
    if self._config.attack_on_updates is not None:
      more[entries.ATTACK] = self.strengths[position]
    if factors is not None:
      more[entries.COHORT_WEIGHT] = factors[i]
    return more


def _factors(
  choice: choosing.Choice | None, positions: np.ndarray, num_examples: np.ndarray
) -> np.ndarray | None:
  """Returns the factors by which the updates of clients are multiplied; None without weights.

  The process then takes the mean over the k clients that finished, of m that were chosen. With
  factors m w_j it is (m / k) sum_j w_j g_j. Clients without examples are in neither number, because
  the mean leaves them out.
  """
  if choice is None or choice.weights is None:
    return None
  # By position, because those that finished are only some of the chosen.
  of_position = dict(zip(choice.positions.tolist(), choice.weights.tolist()))
  num_chosen = np.count_nonzero(num_examples[choice.positions])
  factors = [num_chosen * of_position[int(position)] for position in positions]
  return np.array(factors, np.float32)
