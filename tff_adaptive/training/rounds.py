"""Runs one round, from its cohort to its row of metrics.csv, and evaluates models."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from tff_adaptive._utils import client_references
from tff_adaptive.asynchrony import older_models, settings as asynchrony_lib, simulation
from tff_adaptive.client import entries
from tff_adaptive.runs import metrics as metrics_lib, state_store
from tff_adaptive.runs.errors import NonFiniteWeightsError
from tff_adaptive.training import cohorts, ledger as ledger_lib, protocols, replay, selection
from tff_adaptive.training.config import TrainingConfig

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Round:
  """The results of a round, which the caller then adds to the run.

  Attributes:
    server_state: The new server state.
    client_ids: The ids of the cohort's clients.
    client_states: The new state of each of these clients; None if clients keep no state.
    row: The round's row of metrics.csv.
    passes: Whether `virtual_seconds_per_evaluation` makes an evaluation due after the round.
    ledger: The rows of the ledger; () without one.
    trace: The local steps of the traced client, if it took part.
  """

  server_state: Any
  client_ids: Sequence[str]
  client_states: Sequence[Any] | None
  row: Row
  passes: bool
  ledger: Sequence[Row] = ()
  trace: Sequence[Row] = ()


@dataclasses.dataclass
class Trainer:
  """Runs the rounds of a process. The caller stores the new server and client states."""

  _process: protocols.Process
  _loader: cohorts.CohortLoader
  _store: state_store.ClientStateStore
  _config: TrainingConfig
  _say: Callable[[str], None]
  _said: set[str] = dataclasses.field(default_factory=set)

  def __post_init__(self) -> None:
    self._clients: Any = None
    if self._config.trace_client is not None:
      self._clients = replay.clients_of(self._process)
    # Losses that a rule needs are those at the server's model.
    self._losses_are_known = self._config.ledger
    if self._config.ledger and 'train_losses' in self._loader.selector.needs:
      self._losses_are_known = replay.begin_with_server_model(self._process)

  def run(self, number: int, server_state: Any) -> Round:
    """Trains round `number`, counted from 1; `server_state` is the state before the round.

    Raises:
      NonFiniteWeightsError: If the new global model is not finite.
      ValueError: If clients diverged because their data are not finite, the rule of the cohort
        chose clients that it cannot, or it needs norms that the process does not measure.
    """
    began = time.perf_counter()
    cohort = self._loader.take(number, trainable(server_state.global_model_weights))
    loaded = time.perf_counter()
    plan = cohort.plan
    # A step of asynchronous training gets only the older models that its clients began with.
    slots: Any = None
    if isinstance(plan, simulation.Arrivals):
      slots = server_state.older
      server_state = older_models.before_step(server_state, plan.needed)
    trace = self._trace(number, server_state, cohort)
    new_state, client_states, metrics = self._next(server_state, cohort)
    metrics, of_clients = _split_metrics(metrics, len(cohort.client_ids))
    self._observe(number, cohort, of_clients.get('update_norm'))
    measured = self._measured(metrics, cohort)
    if isinstance(plan, simulation.Arrivals):
      new_state = older_models.after_step(new_state, slots, plan.store)
    counts = {
      'round': number,
      'clients': len(cohort.client_ids),
      'examples': sum(cohort.client_examples),
    }
    row: Row = dict(counts)
    if self._config.attackers is not None:
      row['attackers'] = self._loader.count_attackers(cohort)
    if plan is not None:
      row.update(plan.columns())
    row.update(self._costs(cohort))
    row.update(measured)
    row['seconds_data'] = loaded - began
    # The metrics are values by now, so that the round has been computed and not only begun.
    row['seconds_round'] = time.perf_counter() - loaded
    row.update(counts)  # Again: a metric of the process may have one of these names.
    size = self._config.clients_per_round
    if plan and plan.available < size and self._config.asynchrony is None:
      self._say_once(
        'few',
        f'Only {plan.available} clients are available in round {number}, fewer than the {size} of a'
        ' round.',
      )
    self._check(new_state, row)
    seconds = self._config.virtual_seconds_per_evaluation
    passes = plan is not None and seconds is not None and plan.passes(seconds)
    ledger: Sequence[Row] = ()
    if self._config.ledger:
      rows_of = ledger_lib.Rows(self._config, self._loader.simulation, self._loader.strengths)
      of_ledger = cohort
      if not self._losses_are_known:
        of_ledger = dataclasses.replace(cohort, losses=None)
      ledger = rows_of.of_round(number, of_ledger, of_clients)
    return Round(new_state, cohort.client_ids, client_states, row, passes, ledger, trace)

  def _trace(self, number: int, server_state: Any, cohort: cohorts.Cohort) -> Sequence[Row]:
    """Returns the local steps of the traced client; () if it does not take part."""
    traced = self._config.trace_client
    if traced is None or traced not in cohort.client_ids:
      return ()
    states = None
    if isinstance(self._process, protocols.StatefulProcess):
      states = self._store.get(cohort.client_ids)
    index = list(cohort.client_ids).index(traced)
    data = client_references.resolve(cohort.data)
    return replay.rows_of(number, traced, self._clients.steps(server_state, states, data, index))

  def _next(self, server_state: Any, cohort: cohorts.Cohort) -> tuple[Any, Any, Any]:
    """Runs the process. Returns the server state, the clients' states (or None) and metrics."""
    if not isinstance(self._process, protocols.StatefulProcess):
      output = self._process.next(server_state, cohort.data)
      return output.state, None, output.metrics
    before = self._store.get(cohort.client_ids)
    data = cohort.data
    if not data:
      # TFF's own runtime cannot return an empty list of client states. A client without examples
      # stands in, which takes no step and has no weight.
      before = [self._process.initial_client_state]
      data = [self._loader.without_examples()]
    new_state, after, metrics = self._process.next(server_state, before, data)
    return new_state, list(after)[: len(cohort.client_ids)], metrics

  def _observe(self, number: int, cohort: cohorts.Cohort, norms: np.ndarray | None) -> None:
    """Tells the rule of the cohort what the round showed of its clients."""
    if 'norms' in self._loader.selector.needs and norms is None:
      raise ValueError(
        'the rule of the cohort needs norms of updates, which the process does not measure: build'
        ' it with aggregator=aggregation.ClientNormsFactory().'
      )
    self._loader.observe(number, cohort, norms)

  def _measured(self, metrics: Any, cohort: cohorts.Cohort) -> Row:
    """Returns the columns of the process's metrics."""
    if not cohort.client_ids:
      # Metrics are sums of nothing, but would look like measurements.
      return {}
    measured = metrics_lib.flatten(metrics)
    diverged = measured.get('non_finite_clients', 0)
    if diverged:
      cohort.check_finite()  # A check of all data in each round would cost time.
    empty = sum(not examples for examples in cohort.client_examples)
    if diverged + empty >= len(cohort.client_ids):
      # No client's update is used, and a training loss of 0 would look like a success.
      measured = {k: v for k, v in measured.items() if not k.startswith('train_')}
    return measured

  def _costs(self, cohort: cohorts.Cohort) -> Row:
    """Returns the columns of the round's costs."""
    model = self._config.cost_model
    choice = cohort.choice
    columns: Row = {}
    if choice is not None:
      columns.update(selection.costs_of_candidates(choice, self._loader.num_examples))
    if model is None:
      return columns
    downloads = None
    if choice is not None:
      downloads = choice.downloads
    elif cohort.plan is not None:
      downloads = cohort.plan.selected
    columns.update(model.round(cohort.client_examples, cohort.client_steps, downloads))
    if choice is not None:
      columns['megabytes_up'] += selection.megabytes_of_losses(choice)
    return columns

  def state_megabytes(self, server_state: Any) -> dict[str, float]:
    """Returns megabytes by key: `server`, its state without the model; `client`, a client's state.

    The older models of an asynchronous run are not counted.
    """
    others = server_state.global_model_weights, getattr(server_state, 'older', ())
    client = getattr(self._process, 'initial_client_state', ())
    counted = [_megabytes(other) for other in others]
    return {'server': _megabytes(server_state) - sum(counted), 'client': _megabytes(client)}

  def _say_once(self, kind: str, line: str) -> None:
    if kind not in self._said:
      self._said.add(kind)
      self._say(f'{line} This is reported once; the summary has the count.')

  def _check(self, state: Any, row: Row) -> None:
    loss = row.get('train_loss', 0.0)
    lost = row.get('non_finite_clients', 0)
    about_loss = ''
    if 'train_loss' in row:
      about_loss = f' (training loss {loss})'
    # Without clients, the loss is not defined: NaN.
    is_of_clients = row.get('clients', 1) > 0
    if lost or (is_of_clients and not np.isfinite(loss)):
      self._say_once(
        'diverged',
        f'Clients diverge in round {row["round"]}: {lost:.0f} of {row["clients"]} updates were not'
        f' finite and were left out{about_loss}. A lower client learning rate or gradient clipping'
        ' may help.',
      )
    weights = trainable(state.global_model_weights)
    if not all(np.isfinite(np.asarray(w)).all() for w in weights):
      raise NonFiniteWeightsError(
        f'The global model is no longer finite after round {row["round"]}{about_loss}. Lower the'
        ' server or the client learning rate, clip gradients, or raise tau if the server optimizer'
        ' has it'
      )


def _megabytes(state: Any) -> float:
  return sum(np.asarray(leaf).nbytes for leaf in tree.flatten(state)) / 1e6


def _split_metrics(metrics: Any, num_clients: int) -> tuple[Any, dict[str, np.ndarray]]:
  """Returns metrics without those of single clients, and these by column of the ledger, [m].

  A cohort without clients has a stand-in, whose values are left out.
  """
  columns: dict[str, np.ndarray] = {}
  if not isinstance(metrics, Mapping):
    return metrics, columns
  rest = dict(metrics)
  work = metrics.get('client_work')
  if isinstance(work, Mapping) and 'clients' in work:
    measured = np.asarray(work['clients'])[:num_clients]
    columns.update(zip(entries.MEASURES, measured.T))
    rest['client_work'] = {name: value for name, value in work.items() if name != 'clients'}
  aggregator = metrics.get('aggregator')
  if isinstance(aggregator, Mapping) and 'client_norms' in aggregator:
    # The norms that the server received; with some attacks a client cannot know its own.
    columns['update_norm'] = np.asarray(aggregator['client_norms'])[:num_clients]
    if 'client_cosines' in aggregator:
      columns['cosine_mean'] = np.asarray(aggregator['client_cosines'])[:num_clients]
    rest['aggregator'] = aggregator['aggregate']
  return rest, columns


def evaluated(
  model_name: str, inference_name: str, evaluate_fn: protocols.EvaluateFn, state: Any
) -> dict[str, float]:
  """Returns the metrics of the global model, and of the weights for inference if there are any.

  The names in the result begin with `model_name` and `inference_name` respectively.
  """
  models = {model_name: state.global_model_weights}
  inference = getattr(state, 'inference_weights', None)
  if inference:  # It is () where there are none.
    models[inference_name] = inference
  values = {}
  for name, weights in models.items():
    for metric, value in evaluate_fn(trainable(weights)).items():
      values[f'{name}_{metric}'] = float(value)
  return values


def own_models(
  process: protocols.Process,
  store: state_store.ClientStateStore,
  state: Any,
  changed: Mapping[str, Any],
) -> Callable[[str], Any] | None:
  """Returns a function from a client's id to its own model; None if clients have no models.

  Args:
    process: The process. If clients have models it has `has_client_models` and `client_model`, as
      `algorithms.StatefulProcess` does.
    store: The clients' states.
    state: The server state.
    changed: Newer states by client id, which the store does not have yet.
  """
  if not getattr(process, 'has_client_models', False):
    return None
  of_server = state.inference_weights or state.global_model_weights

  def own_model(client_id: str) -> Any:
    if client_id in changed:
      client_state = changed[client_id]
    elif store.has(client_id):
      client_state = store.get([client_id])[0]
    else:
      return trainable(of_server)
    return process.client_model(state, client_state)  # type: ignore[union-attr]

  return own_model


def trainable(weights: Any) -> Any:
  """Returns the trainable weights of a `ModelWeights`; other weights are returned unchanged."""
  return weights.trainable if isinstance(weights, protocols.ModelWeights) else weights


def check_client_data(clients: Any) -> None:
  """Raises TypeError if an object lacks a part of the protocol `ClientData`."""
  missing = [n for n in ('client_ids', 'num_examples', 'load') if not hasattr(clients, n)]
  if missing:
    raise TypeError(
      f'{type(clients).__name__} has no {" and no ".join(missing)}: client data have client_ids,'
      ' num_examples(client_id) and load(client_id)'
    )


def check_takes_arrays(process: protocols.Process, config: TrainingConfig) -> None:
  """Checks that a process takes arrays of examples and fits the run, as far as its types show it.

  Raises:
    ValueError: If the process takes datasets of batches, or was built with an `asynchrony` or
      `step_limits` that do not fit `config`.
  """
  signature = getattr(process.next, 'type_signature', None)
  data_type = None
  if signature is not None:
    # The clients' data are the last argument, with client states before them or not.
    data_type = signature.parameter[len(signature.parameter) - 1]
  element = getattr(getattr(data_type, 'member', None), 'element', None)
  # A process of another library, or a function in its place, is taken as it is.
  if element is None:
    return
  if not hasattr(element, 'client'):
    raise ValueError(
      f'the process takes batched datasets (of {element}), the training loop gives whole arrays: '
      'build it with ClientTraining(batching=tff_adaptive.Batching(20)), say'
    )
  needed = set()
  if config.limits_steps:
    needed.add('max_steps')
  if config.asynchrony is not None:
    needed |= {asynchrony_lib.OLDER_MODEL, config.asynchrony.factor_entry}
  if config.weighs_cohorts:
    needed.add(entries.COHORT_WEIGHT)
  if config.attack_on_updates is not None:
    needed.add(entries.ATTACK)
  factors = (asynchrony_lib.STALENESS_FACTOR, asynchrony_lib.MIXING_FACTOR)
  of_clients = ('max_steps', entries.COHORT_WEIGHT, entries.ATTACK)
  optional = (*of_clients, asynchrony_lib.OLDER_MODEL, *factors)
  if {entry for entry in optional if hasattr(element, entry)} != needed:
    raise ValueError(
      'the process was built for other rounds than these: build it with'
      f' asynchrony=config.asynchrony, which is {config.asynchrony}, and'
      ' training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20,'
      f' step_limits={config.limits_steps}), cohort_weights={config.weighs_cohorts},'
      f' attack={config.attack_on_updates!r}), say'
    )
