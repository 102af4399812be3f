"""What settings have to do with each other: each rule is a function with one message.

A rule gets the settings of a run and returns why they do not go together, or None if they do.
`RULES` has all in the order in which they are asked. What a value may be on its own is declared
with its flag (see `fields`); what needs the data is checked with `check_cohort` and in `build`.
"""

import os
from collections.abc import Callable, Sequence

from tff_adaptive import registry
from tff_adaptive._utils import suggestions
from tff_adaptive.aggregation import table
from tff_adaptive.corrections import chains
from tff_adaptive.registry import described
from tff_adaptive_tasks import catalog

from . import client_rules, fields, machine_rules
from .settings import Settings


def check(settings: Settings) -> None:
  """Raises ValueError with the message of the first rule that the settings break."""
  for rule in RULES:
    message = rule(settings)
    if message is not None:
      raise ValueError(message)


def check_cohort(cohort: int, clients: int, algorithm: registry.Algorithm) -> None:
  """Raises ValueError for more clients in a round than exist, or fewer than the algorithm needs."""
  if cohort < clients and 'participation' in algorithm.settings:
    raise ValueError(
      f'--algorithm {algorithm.name} needs all {clients} clients in every round, found {cohort}:'
      ' its h_i are renewed by the model of the very next round; give --participation=1, or take'
      ' another algorithm, such as scaffold.'
    )
  if cohort > clients:
    raise ValueError(
      f'the number of clients in a round must be from 1 to {clients}, which are all clients; found'
      f' {cohort}: give fewer.'
    )


def check_early_stop(name: str | None, metrics: Sequence[str]) -> None:
  """Raises ValueError if --early_stop names no metric of the model, and no other column either.

  The run would otherwise train all its rounds without a word.

  Args:
    name: The value of --early_stop, or None.
    metrics: The names of the model's metrics.
  """
  if name is None:
    return
  from tff_adaptive.models import named_metrics  # It loads TensorFlow.

  metric = name.removeprefix('validation_').removeprefix('inference_')
  # Columns of training, of clients and of callbacks are known only when a round has been trained.
  may_be_column = name == metric and not named_metrics.is_name(name)
  may_be_column &= name.endswith(tuple(metrics)) or not suggestions.nearest(name, metrics)
  if metric in metrics or may_be_column:
    return
  add = ''
  if named_metrics.is_name(metric):
    add = f', or give --metric={metric} too, which adds it'
  raise ValueError(
    f'--early_stop={name}: {suggestions.unknown("metric", metric, metrics)[:-1]}{add}.'
  )


def check_data_dir(task: str, folder: str | None) -> None:
  """Raises ValueError for a --data_dir that is not a folder, or that the task does not use."""
  if folder is None:
    return
  if task in catalog.OFFLINE:
    raise ValueError(
      f'--data_dir has no meaning for --task={task}, which has no files: leave it out.'
    )
  if not os.path.isdir(folder):
    raise ValueError(f'--data_dir={folder}: there is no such folder; give an existing one.')


# The algorithm and its clients.


# A baseline pools the examples of all clients: one client, which is always there.
def _pooled_client_is_alone(settings: Settings) -> str | None:
  is_plain = settings.population.availability is None and settings.synchrony.synchrony is None
  is_alone = settings.training.clients_per_round == 1 and is_plain
  if not settings.what.algorithm_entry.pools_clients or is_alone:
    return None
  return (
    f'--algorithm={settings.what.algorithm} trains one client, which has the examples of all: leave'
    ' out --clients_per_round, --participation, --synchrony, and the flags of unavailable, slow and'
    ' failing clients.'
  )


# The rates of a task are tuned for clients of a few examples, so they do not count here.
def _pooled_client_has_a_rate(settings: Settings) -> str | None:
  is_given = settings.rates.client_learning_rate is not None
  if not settings.what.algorithm_entry.pools_clients or is_given:
    return None
  return (
    f'--algorithm={settings.what.algorithm} has no default rate for'
    f' {settings.what.client_optimizer}: give --client_learning_rate=0.1, say.'
  )


# For tasks whose number of clients is known without their data, before these are loaded.
def _cohort_is_of_the_clients(settings: Settings) -> str | None:
  algorithm = settings.what.algorithm_entry
  clients = catalog.num_clients(settings.known_task, settings.what.task_options)
  if clients is not None and not algorithm.pools_clients:
    check_cohort(settings.training.cohort(clients), clients, algorithm)
  return None


# Flags of every algorithm that add a part to its chain: what a part excludes, it declares.
def _parts_of_flags_fit(settings: Settings) -> str | None:
  classes = described.classes_of(settings.what.algorithm_entry)
  for flag, value, part in (
    ('sam_rho', settings.what.sam_rho, 'sam'),
    ('clip_norm', settings.clients.clip_norm, 'clip'),
    ('weight_decay', settings.clients.weight_decay, 'weight_decay'),
  ):
    if value:
      with fields.about(flag):
        chains.check([*classes, registry.PARTS[part]])
  return None


# An exchange needs the whole cohort before a step, and without rounds there is no cohort.
def _exchanges_are_in_rounds(settings: Settings) -> str | None:
  if settings.synchrony.synchrony != 'buffered':
    return None
  for part in described.classes_of(settings.what.algorithm_entry):
    if part.overrides('exchange'):
      return (
        f'--synchrony=buffered does not go with --algorithm={settings.what.algorithm}: the clients'
        f' of {part.name} exchange values before any of them trains; leave it out, or take another'
        ' algorithm, such as mime_lite.'
      )
  return None


# Changes are those since the round before; a buffered client begins at any step.
def _changes_are_sent_in_rounds(settings: Settings) -> str | None:
  if settings.synchrony.synchrony != 'buffered':
    return None
  for part in described.classes_of(settings.what.algorithm_entry):
    if part.compresses_down:
      return (
        f'--synchrony=buffered does not go with --algorithm={settings.what.algorithm}:'
        f' {part.name} sends changes from round to round, and each client begins with another'
        ' model; leave it out.'
      )
  return None


# The cohort itself is checked by `check_cohort`; here, that nobody drawn stays away.
def _all_clients_are_there(settings: Settings) -> str | None:
  algorithm = settings.what.algorithm_entry
  if settings.population.availability is None or 'participation' not in algorithm.settings:
    return None
  return (
    f'--algorithm {algorithm.name} needs all clients in every round: leave out the flags of'
    ' unavailable, slow and failing clients, or take another algorithm, such as scaffold.'
  )


def _what_the_name_stands_for_stays(settings: Settings) -> str | None:
  algorithm = settings.what.algorithm_entry
  for name in ('client_optimizer', 'client_optimizer_state', 'sam_rho'):
    fixed = algorithm.settings.get(name)
    value = getattr(settings.what, name)
    # Another rho than an algorithm's own is a variant of it; 0 makes it another algorithm.
    is_variant = name == 'sam_rho' and value
    if fixed is not None and value != fixed and not is_variant:
      return (
        f'--{name}={value} does not go with --algorithm {algorithm.name}, which stands for'
        f' {fixed}: leave it out, or take another algorithm.'
      )
  return None


def _client_optimizer_has_these_options(settings: Settings) -> str | None:
  # After the rule above: the options of an algorithm's own optimizer are those of no other.
  _ = settings.what.client_values
  return None


def _sgd_has_no_state(settings: Settings) -> str | None:
  state = settings.what.client_optimizer_state
  if settings.what.client_optimizer != 'sgd' or state == 'reset':
    return None
  return (
    f'--client_optimizer_state={state} has no meaning for --client_optimizer=sgd, which has no'
    ' state: give another optimizer, or leave it out.'
  )


def _formulas_may_assume_sgd(settings: Settings) -> str | None:
  algorithm = settings.what.algorithm_entry
  if settings.what.client_optimizer == 'sgd' or not algorithm.assumes_sgd:
    return None
  return (
    f'--client_optimizer={settings.what.client_optimizer} does not go with --algorithm'
    f' {algorithm.name}: {algorithm.assumes_sgd}, so clients train with sgd; leave it out, or take'
    ' another algorithm, such as fed_avg.'
  )


def _weighting_is_of_the_task(settings: Settings) -> str | None:
  task = settings.what.known_task
  of_task = 'tokens'  # A user's own task may have them.
  if task:
    of_task = catalog.sizes(task).get('client_weighting', 'examples')
  valid = tuple(dict.fromkeys(('examples', 'uniform', of_task)))
  fields.check_name('client_weighting', settings.clients.client_weighting, valid)
  return None


# Batches and local steps.


def _replacement_needs_batches(settings: Settings) -> str | None:
  if settings.training.with_replacement and not settings.training.batch_size:
    return '--with_replacement needs batches: give --batch_size, 20 say.'
  return None


def _batches_are_continued_in_passes(settings: Settings) -> str | None:
  training = settings.training
  if not training.continue_batches:
    return None
  for name, is_wrong in (
    ('batch_size', not training.batch_size),
    ('with_replacement', training.with_replacement),
    ('random_local_steps', training.random_local_steps),
  ):
    if is_wrong:
      return (
        f'--continue_batches does not go with --{name}={getattr(training, name)}: it needs passes'
        ' over batches and a fixed number of steps; leave one of them out.'
      )
  return None


# Asynchronous training.


# The server waits for a number of updates, whoever sends them.
def _buffers_select_no_more(settings: Settings) -> str | None:
  is_buffered = settings.synchrony.synchrony == 'buffered'
  if is_buffered and settings.population.over_select not in (None, 1.0):
    return '--over_select has no meaning with --synchrony=buffered: leave it out.'
  return None


def _buffers_have_one_size(settings: Settings) -> str | None:
  training = settings.training
  if training.buffer_size is not None and training.participation is not None:
    return '--buffer_size stands in place of --participation: leave one of them out.'
  return None


# Aggregation and privacy.


def _aggregator_keeps_its_promise(settings: Settings) -> str | None:
  with fields.about('aggregator'):
    table.check(
      settings.aggregation.entry,
      settings.what.algorithm_entry,
      settings.correction,
      settings.clients.client_weighting,
      settings.what.client_optimizer_state,
    )
  return None


# TFF has the bodies of secure sums in its test context only.
def _secure_sums_are_in_the_graph(settings: Settings) -> str | None:
  if settings.aggregation.aggregator == 'secure' and settings.runtime.engine == 'native':
    return (
      "--aggregator=secure does not go with --engine=native: TFF's own runtime has no secure sums;"
      ' leave out --engine.'
    )
  return None


def _what_is_hidden_is_not_written(settings: Settings) -> str | None:
  entry = settings.aggregation.entry
  if settings.output.full_ledger and entry.hides_clients:
    return (
      f'--full_ledger writes down what --aggregator={entry.name} hides, the losses and updates of'
      ' single clients: leave out one of them.'
    )
  if settings.output.trace_client is not None and entry.hides_clients:
    return (
      f'--trace_client writes down what --aggregator={entry.name} hides, the training of a client:'
      ' leave out one of them.'
    )
  return None


def _delta_is_above_zero(settings: Settings) -> str | None:
  if settings.aggregation.entry.is_private and settings.aggregation.delta == 0:
    return '--delta must be above 0, found 0: Gaussian noise has no finite epsilon for delta 0.'
  return None


def _noise_is_given_once(settings: Settings) -> str | None:
  aggregation = settings.aggregation
  if not aggregation.entry.is_private:
    return None
  has_multiplier = aggregation.option_values['noise_multiplier'] is not None
  has_target = aggregation.target_epsilon is not None
  if has_multiplier != has_target:
    return None
  return (
    f'--aggregator={aggregation.aggregator} needs either --target_epsilon or'
    ' --aggregator_option=noise_multiplier=VALUE: give one of them.'
  )


def _private_cohorts_are_drawn_from_all(settings: Settings) -> str | None:
  if not settings.aggregation.entry.is_private:
    return None
  for flags, is_given in (
    ('--synchrony=buffered', settings.synchrony.synchrony == 'buffered'),
    ('flags of a population', settings.population.availability is not None),
  ):
    if is_given:
      return (
        f'--aggregator={settings.aggregation.aggregator} does not go with {flags}: its epsilon'
        ' assumes that each cohort is drawn from all clients and that all of them finish.'
      )
  return None


RULES: tuple[Callable[[Settings], str | None], ...] = (
  _pooled_client_is_alone,
  _pooled_client_has_a_rate,
  _cohort_is_of_the_clients,
  _parts_of_flags_fit,
  _exchanges_are_in_rounds,
  _changes_are_sent_in_rounds,
  _all_clients_are_there,
  _what_the_name_stands_for_stays,
  _client_optimizer_has_these_options,
  _sgd_has_no_state,
  _formulas_may_assume_sgd,
  _replacement_needs_batches,
  _batches_are_continued_in_passes,
  _weighting_is_of_the_task,
  _buffers_select_no_more,
  _buffers_have_one_size,
  _aggregator_keeps_its_promise,
  _secure_sums_are_in_the_graph,
  _what_is_hidden_is_not_written,
  _delta_is_above_zero,
  _noise_is_given_once,
  _private_cohorts_are_drawn_from_all,
  *client_rules.RULES,
  *machine_rules.RULES,
)
