"""Runs one round, from its cohort to its row of metrics.csv, and evaluates models."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from tff_adaptive.asynchrony import older_models, settings as asynchrony_lib, simulation
from tff_adaptive.runs import metrics as metrics_lib, state_store
from tff_adaptive.runs.errors import NonFiniteWeightsError
from tff_adaptive.training import cohorts, protocols
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
  """

  server_state: Any
  client_ids: Sequence[str]
  client_states: Sequence[Any] | None
  row: Row
  passes: bool


@dataclasses.dataclass
class Trainer:
  """Runs the rounds of a process. The caller stores the new server and client states."""

  _process: protocols.Process
  _loader: cohorts.CohortLoader
  _store: state_store.ClientStateStore
  _config: TrainingConfig
  _say: Callable[[str], None]
  _said: set[str] = dataclasses.field(default_factory=set)

  def run(self, number: int, server_state: Any) -> Round:
    """Trains round `number`, counted from 1; `server_state` is the state before the round.

    Raises:
      NonFiniteWeightsError: If the new global model is not finite.
      ValueError: If clients diverged because their data are not finite.
    """
    began = time.perf_counter()
    cohort = self._loader.take(number)
    loaded = time.perf_counter()
    plan, model = cohort.plan, self._config.cost_model
    after, slots = None, None
    if isinstance(plan, simulation.Arrivals):
      slots = server_state.older
      server_state = older_models.before_step(server_state, plan.needed)
    if isinstance(self._process, protocols.StatefulProcess):
      before, data = self._store.get(cohort.client_ids), cohort.data
      if not data:
        # TFF's own runtime cannot return an empty list of client states. A client without examples
        # stands in, which takes no step and has no weight.
        before, data = [self._process.initial_client_state], [self._loader.without_examples()]
      new_state, after, metrics = self._process.next(server_state, before, data)
      after = list(after)[: len(cohort.client_ids)]
    else:
      output = self._process.next(server_state, cohort.data)
      new_state, metrics = output.state, output.metrics
    # Without clients, metrics are sums of nothing, but would look like measurements.
    measured = metrics_lib.flatten(metrics) if cohort.client_ids else {}
    if measured.get('non_finite_clients', 0):
      cohort.check_finite()  # A check of all data in each round would cost time.
    empty = sum(not examples for examples in cohort.client_examples)
    if measured.get('non_finite_clients', 0) + empty >= len(cohort.client_ids):
      # No client's update is used, and a training loss of 0 would look like a success.
      measured = {k: v for k, v in measured.items() if not k.startswith('train_')}
    if isinstance(plan, simulation.Arrivals):
      new_state = older_models.after_step(new_state, slots, plan.store)
    downloads = plan.selected if plan else None
    sizes = cohort.client_examples, cohort.client_steps
    own = dict(round=number, clients=len(cohort.client_ids), examples=sum(cohort.client_examples))
    row = {
      **own,
      **(plan.columns() if plan else {}),
      **(model.round(*sizes, downloads) if model else {}),
      **measured,
      'seconds_data': loaded - began,
      'seconds_round': time.perf_counter() - loaded,
      **own,  # Again: a metric of the process may have one of these names.
    }
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
    return Round(new_state, cohort.client_ids, after, row, passes)

  def state_megabytes(self, server_state: Any) -> dict[str, float]:
    """Returns megabytes by key: `server`, its state without the model; `client`, a client's state.

    The older models of an asynchronous run are not counted.
    """
    others = server_state.global_model_weights, getattr(server_state, 'older', ())
    client = getattr(self._process, 'initial_client_state', ())
    states = (tree.flatten(state) for state in (server_state, *others, client))
    whole, *less, client = (sum(np.asarray(a).nbytes for a in leaves) / 1e6 for leaves in states)
    return {'server': whole - sum(less), 'client': client}

  def _say_once(self, kind: str, line: str) -> None:
    if kind not in self._said:
      self._said.add(kind)
      self._say(f'{line} This is reported once; the summary has the count.')

  def _check(self, state: Any, row: Row) -> None:
    loss, lost = row.get('train_loss', 0.0), row.get('non_finite_clients', 0)
    shown = f' (training loss {loss})' if 'train_loss' in row else ''
    # Without clients, the loss is not defined: NaN.
    is_of_clients = row.get('clients', 1) > 0
    if lost or (is_of_clients and not np.isfinite(loss)):
      self._say_once(
        'diverged',
        f'Clients diverge in round {row["round"]}: {lost:.0f} of {row["clients"]} updates were not'
        f' finite and were left out{shown}. A lower client learning rate or gradient clipping may'
        ' help.',
      )
    weights = trainable(state.global_model_weights)
    if not all(np.isfinite(np.asarray(w)).all() for w in weights):
      raise NonFiniteWeightsError(
        f'The global model is no longer finite after round {row["round"]}{shown}. Lower the server'
        ' or the client learning rate, clip gradients, or raise tau if the server optimizer has it'
      )


def evaluated(
  model_name: str, inference_name: str, evaluate_fn: protocols.EvaluateFn, state: Any
) -> dict[str, float]:
  """Returns the metrics of the global model, and of the weights for inference if there are any.

  The names in the result begin with `model_name` and `inference_name` respectively.
  """
  models = {model_name: state.global_model_weights}
  if inference := getattr(state, 'inference_weights', None):  # () where there are none.
    models[inference_name] = inference
  return {
    f'{name}_{metric}': float(value)
    for name, weights in models.items()
    for metric, value in evaluate_fn(trainable(weights)).items()
  }


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
  data_type = None if signature is None else signature.parameter[len(signature.parameter) - 1]
  if (element := getattr(getattr(data_type, 'member', None), 'element', None)) is None:
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
  factors = (asynchrony_lib.STALENESS_FACTOR, asynchrony_lib.MIXING_FACTOR)
  optional = ('max_steps', asynchrony_lib.OLDER_MODEL, *factors)
  if {entry for entry in optional if hasattr(element, entry)} != needed:
    raise ValueError(
      'the process was built for other rounds than these: build it with'
      f' asynchrony=config.asynchrony, which is {config.asynchrony}, and'
      ' training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20,'
      f' step_limits={config.limits_steps})), say'
    )
