"""A client's own model, from the folder of a run."""

from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import option_values, suggestions
from tff_adaptive.registry import entries


def weights_of(run: Any, task: Any, model: Any, client_id: str) -> Any:
  """Returns the trainable weights of a client's own model; see `Correction.personal`.

  A client that has not taken part has the run's global model.

  Args:
    run: A run loaded by `tasks.load_run`.
    task: The run's task.
    model: The model of the task.
    client_id: The client's id.

  Raises:
    ValueError: If there is no such client, or the algorithm's clients have no models of their own.
    StateError: If the run has no checkpoint, or it is damaged or in use.
  """
  from tff_adaptive import algorithms, client
  from tff_adaptive.algorithms import components, stateful_process
  from tff_adaptive.client import model_adapters
  from tff_adaptive.runs import state_file, state_store

  if client_id not in set(task.train.client_ids):
    raise ValueError(suggestions.unknown('client', client_id, task.train.client_ids))
  correction = _correction(run)
  if not correction.overrides('personal'):
    raise ValueError(
      f'{run.folder}: the clients of {correction.name} have no models of their own: leave --client'
      ' out.'
    )
  inference = run.inference_weights
  # The model that is evaluated is what `own_model` changes for a client.
  theta = run.weights if inference is None else inference
  settings = run.settings
  optimizer = algorithms.build_client_optimizer(
    settings['client_optimizer'], _options(settings['client_optimizer_option'])
  )
  training = client.ClientTraining(optimizer, optimizer_state=settings['client_optimizer_state'])
  local_model = model_adapters.wrap(model)
  correction = correction.resolved(local_model.named_weights())
  first_weights = tuple(local_model.initial_weights().trainable)
  first = components.first_client_state(correction, training.resolved(), first_weights)
  with state_store.ClientStateStore(state_file.path(run.folder), first) as store:
    if not store.has(client_id):
      return theta
    state = store.get([client_id])[0]
  return stateful_process.own_model(correction, training.resolved(), state, theta)


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
