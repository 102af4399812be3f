"""A client's own model, from the folder of a run."""

from collections.abc import Sequence
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import option_values, suggestions
from tff_adaptive._utils.weight_groups import NamedWeight
from tff_adaptive.registry import entries
from tff_adaptive.reports import client_distribution


def weights_of(
  run: Any, named_weights: Sequence[NamedWeight], initial: Sequence[Any], client_id: str
) -> Any:
  """Returns the trainable weights of a client's own model; see `Correction.personal`.

  Args:
    run: A run loaded by `tasks.load_run`.
    named_weights: The model's weights by name and kind.
    initial: Arrays in the shapes and dtypes of the weights.
    client_id: The client's id.

  Returns:
    The weights; None for a client that has not taken part, or does not exist.

  Raises:
    ValueError: If the algorithm's clients have no models of their own.
    StateError: If the run has no checkpoint, or it is damaged or in use.
  """
  from tff_adaptive import algorithms, client
  from tff_adaptive.algorithms import components, stateful_process
  from tff_adaptive.runs import state_file, state_store

  correction = _correction(run)
  if not correction.overrides('personal'):
    raise ValueError(
      f'{run.folder}: the clients of {correction.name} have no models of their own: leave --client'
      ' out.'
    )
  settings = run.settings
  optimizer = algorithms.build_client_optimizer(
    settings['client_optimizer'], _options(settings['client_optimizer_option'])
  )
  training = client.ClientTraining(optimizer, optimizer_state=settings['client_optimizer_state'])
  correction = correction.resolved(named_weights)
  first = components.first_client_state(correction, training.resolved(), tuple(initial))
  with state_store.ClientStateStore(state_file.path(run.folder), first) as store:
    if not store.has(client_id):
      return None
    state = store.get([client_id])[0]
  return stateful_process.own_model(correction, training.resolved(), state, global_of(run))


def global_of(run: Any) -> Any:
  """Returns the global model that is evaluated, which `own_model` changes for a client."""
  inference = run.inference_weights
  if inference is None:
    return run.weights
  return inference


def check_known(run: Any, task: Any, client_id: str) -> None:
  """Raises ValueError unless a run's task, or its evaluations by client, have a client.

  Args:
    run: A run loaded by `tasks.load_run`.
    task: The run's task; None if it cannot be loaded.
    client_id: The id of a client without a state.
  """
  known = set(client_distribution.evaluated_clients(run))
  if task is not None:
    known.update(task.train.client_ids)
  if client_id in known:
    return
  if task is not None:
    raise ValueError(suggestions.unknown('client', client_id, sorted(known)))
  raise ValueError(
    f'{run.folder} has no model of client {client_id!r}, and its task is not here to say whether'
    ' there is such a client: one that has not taken part has the global model, which is exported'
    ' without --client.'
  )


def _correction(run: Any) -> Any:
  """Returns the correction of a run, from its config.json."""
  from tff_adaptive import algorithms, corrections

  settings = run.settings
  entry = registry.algorithm(settings['algorithm'])
  if entry.takes_options:
    values = _options(settings['algorithm_option'])
  else:
    values = {h.name: settings[h.name] for h in entry.hyperparameters}
  data = run.config['data']
  clients = corrections.RegisteredClients(data['clients'], data['examples'] / data['clients'])
  of_algorithm = entries.resolve(entry.correction).configure(entry.values(values), clients)
  parts = algorithms.regularization(
    settings['sam_rho'] or 0.0, settings.get('clip_norm'), settings['weight_decay'] or 0.0
  )
  return corrections.chain(of_algorithm, *parts)


def _options(pairs: Any) -> dict[str, Any]:
  """Returns values by name from texts such as 'rho=0.05'."""
  values = {}
  for pair in pairs or ():
    name, _, text = pair.partition('=')
    values[name] = option_values.value(text)
  return values
