"""Rules of the choice of clients, of attacks, of the clients' clock and of their evaluation.

See `rules`, which asks them after its own.
"""

from collections.abc import Callable

from tff_adaptive.population import attacks, choosing, speed

from .settings import Settings

# The choice of clients, and attacks.


def _all_clients_are_chosen(settings: Settings) -> str | None:
  algorithm = settings.what.algorithm_entry
  needs_all = 'participation' in algorithm.settings or algorithm.pools_clients
  if settings.cohort.cohort is None or not needs_all:
    return None
  return (
    f'--cohort={settings.cohort.cohort} does not go with --algorithm={algorithm.name}, which trains'
    ' all clients in every round: leave out one of them.'
  )


def _buffers_draw_clients_one_by_one(settings: Settings) -> str | None:
  if settings.cohort.cohort is None or settings.synchrony.synchrony != 'buffered':
    return None
  return (
    f'--cohort={settings.cohort.cohort} does not go with --synchrony=buffered, which draws the'
    ' clients that begin one by one: leave out one of them.'
  )


# An epsilon assumes uniform draws, and a secure sum shows no norm of a single client.
def _rules_see_what_the_server_may_see(settings: Settings) -> str | None:
  rule = settings.cohort.build(settings.clients.client_weighting)
  if rule is None:
    return None
  entry = settings.aggregation.entry
  sees_norms = entry.name == 'secure' and 'norms' in choosing.needs_of(rule)
  if not entry.is_private and not sees_norms:
    return None
  return (
    f'--cohort={settings.cohort.cohort} does not go with --aggregator={entry.name}, which must not'
    ' depend on what a single client sent, and assumes uniform draws where it reports an epsilon:'
    ' leave out one of them.'
  )


def _weights_are_of_all_that_is_sent(settings: Settings) -> str | None:
  if not choosing.gives_weights(settings.cohort.build(settings.clients.client_weighting)):
    return None
  flag = f'--cohort={settings.cohort.cohort}'
  if settings.clients.client_weighting == 'tokens':
    return (
      f'{flag} gives updates weights as the clients count in the objective: give'
      ' --client_weighting=examples or uniform.'
    )
  aggregator = settings.aggregation.entry
  if aggregator.promise == 'bound':  # The median of w_j g_j, say, estimates nothing.
    return (
      f'{flag} multiplies updates by weights whose sum is an unbiased mean, and'
      f' --aggregator={aggregator.name} makes no sum of them: take another aggregator, such as mean'
      ' or clipping, or a rule without weights, such as uniform.'
    )
  sends = settings.what.algorithm_entry.uploads
  if not sends and settings.what.client_optimizer_state == 'average':
    sends = 'the state of its optimizer'
  if not sends:
    return None
  return (
    f'{flag} gives updates weights, and a client of {settings.what.algorithm_entry.name} also sends'
    f' {sends}, which would have none: take another algorithm, such as fed_avg or fed_dyn.'
  )


# Their marks are weights, which noise for privacy has not.
def _attackers_have_weights(settings: Settings) -> str | None:
  is_product = settings.attack.attack == attacks.INNER_PRODUCT
  if not is_product or not settings.aggregation.entry.is_private:
    return None
  return (
    f'--attack={settings.attack.attack} does not go with --aggregator='
    f'{settings.aggregation.aggregator}, which takes no weights: take another attack.'
  )


# The clock and the speed of clients.


def _budgets_of_seconds_have_a_clock(settings: Settings) -> str | None:
  has_clock = settings.population.availability or settings.synchrony.synchrony == 'buffered'
  if settings.output.max_virtual_seconds is None or has_clock:
    return None
  return '--max_virtual_seconds needs clients with a speed: give --availability=always, say.'


def _speed_is_given_once(settings: Settings) -> str | None:
  if settings.population.speed is None:
    return None
  for flag in (*speed.COLUMNS, 'speed_sigma', 'bandwidth_sigma', 'client_profiles'):
    if flag in settings.given:
      return (
        f'--{flag} has no meaning with --speed={settings.population.speed}: leave out one of them.'
      )
  return None


# Evaluation by client.


def _fine_tuning_is_judged_on_other_examples(settings: Settings) -> str | None:
  evaluation = settings.evaluation
  for name, training in (
    ('personalization_epochs', 'fine-tuning'),
    ('local_baseline_epochs', 'training alone'),
  ):
    if getattr(evaluation, name) is not None and not evaluation.heldout_examples:
      return (
        f'--{name} needs examples that {training} has not seen: give --heldout_examples=0.2, say.'
      )
  return None


RULES: tuple[Callable[[Settings], str | None], ...] = (
  _all_clients_are_chosen,
  _buffers_draw_clients_one_by_one,
  _rules_see_what_the_server_may_see,
  _weights_are_of_all_that_is_sent,
  _attackers_have_weights,
  _budgets_of_seconds_have_a_clock,
  _speed_is_given_once,
  _fine_tuning_is_judged_on_other_examples,
)
