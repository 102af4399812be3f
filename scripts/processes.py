"""From settings to what is trained: the process and its evaluation."""

from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow_federated as tff

from scripts import settings as settings_lib
from tff_adaptive import algorithms, batching, execution, mixed_precision, models, optimizers


def build_process(settings: Mapping[str, Any], task: Any, model: Any) -> Any:
  """Builds the process that the settings describe.

  Args:
    settings: Flag name -> value, resolved.
    task: The `tasks.Task`.
    model: Its model.

  Returns:
    A `tff.learning.templates.LearningProcess` or an `algorithms.StatefulProcess`.

  Raises:
    ValueError: If a value is out of its range.
  """
  algorithm = settings['algorithm']
  if settings['mixed_precision'] is not None:
    model = mixed_precision.convert(model, settings['mixed_precision'])
  options = {
    'client_learning_rate': settings_lib.schedule(settings, 'client'),
    'client_weighting': settings['client_weighting'],
    'batching': batching.Batching(
      settings['batch_size'] or None,
      settings['client_epochs'],
      fill_last=settings['fill_last_batch'],
      unit_starts=task.unit_starts,
    ),
    'weight_decay': settings['weight_decay'],
    'clip_norm': settings['clip_norm'],
    'seed': settings['seed'],
    'xla': bool(settings['xla']),
  }
  if settings['client_weighting'] == 'tokens':
    options['client_weighting'] = task.client_weight
  schedule = settings_lib.schedule(settings, 'server')
  if settings['server_schedule'] != 'constant' or settings['server_schedule_option']:
    options['server_schedule'] = schedule
  given = {k: settings[k] for k in ('tau', 'beta1', 'beta2', 'bias_correction', 'initial_v')}
  given['momentum'] = settings['momentum']
  given = {k: v for k, v in given.items() if v is not None}
  rate = settings['server_learning_rate']
  if algorithm.startswith('fed_a') or algorithm == 'fed_yogi':  # The server is in the name.
    return algorithms.build(algorithm, model, server_learning_rate=rate, **given, **options)
  server = settings['server_optimizer']
  build_server = getattr(optimizers, 'build_sgdm' if server == 'sgd' else f'build_{server}')
  options['server_optimizer'] = build_server(rate, **given)
  options.update(_correction_options(settings, task))
  return algorithms.build(algorithm, model, **options)


def build_evaluation(task: Any, model: Any) -> Callable[[Any], Mapping[str, float]]:
  """Returns the function that evaluates weights on the task's validation data."""
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, task.validation)


def build_test(task: Any, model: Any) -> Optional[Callable[[Any], Mapping[str, float]]]:
  """Returns the function that evaluates weights on the task's test data; None without them."""
  if task.test is None:
    return None
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, task.test)


def set_engine(
  name: str,
  clients_per_step: Optional[int] = None,
  device: Optional[str] = None,
  parallel_clients: Optional[int] = None,
) -> None:
  """Makes an engine, 'graph' or 'native', the one that runs TFF computations.

  Before TensorFlow's first operation, so that the graph engine can choose its threads.

  Args:
    name: 'graph' or 'native'.
    clients_per_step: See `execution.GraphContext`.
    device: 'auto' (or None), 'cpu' or 'gpu', for the graph engine.
    parallel_clients: See `execution.GraphContext`.

  Raises:
    ValueError: If there is no such device.
  """
  if name == 'graph':
    execution.set_graph_context(parallel_clients, clients_per_step, device or 'auto')
  else:
    execution.set_native_context()


def set_workers(settings: Mapping[str, Any]) -> Any:
  """Has the workers, if the settings name any, run the clients; the engine runs the rest.

  Returns:
    The `execution.RemoteContext`, or None.

  Raises:
    execution.WorkerError: If one of them cannot be used.
  """
  if settings['workers'] is None:
    return None
  return execution.set_remote_context(
    settings['workers'].split(','),
    subrounds=settings['subrounds'],
    server=tff.framework.get_context_stack().current,
  )


def _correction_options(settings, task):
  algorithm = settings['algorithm']
  options = {}
  if algorithm in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = len(task.train.client_ids)
  if algorithm == 'scaffold':
    options['option'] = settings['scaffold_option']
  if algorithm in ('fed_prox', 'fed_dyn', 'ada_best'):
    options['mu'] = settings['mu']
  if algorithm == 'fed_dyn' and settings['scale_mu']:
    sizes = [task.train.num_examples(client_id) for client_id in task.train.client_ids]
    most = settings['max_examples_per_client'] or max(sizes)
    options['mean_examples'] = sum(min(size, most) for size in sizes) / len(sizes)
  if algorithm == 'ada_best':
    options.update(beta=settings['beta'], scale_mu=settings['scale_mu'])
    if settings['beta_decay'] != 1:
      options['plateau_decay'] = settings['beta_decay']
  return options
