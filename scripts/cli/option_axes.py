"""Says for which of the varied algorithms, rules and so on an option NAME=VALUE has a meaning."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code
from tff_adaptive.aggregation import table
from tff_adaptive.population import attacks, cohort_rules
from tff_adaptive.registry import user_parts

from .groups import population, synchrony

# Flag of options -> the flag that names what has them. Options of tasks are not looked up.
BASES: Mapping[str, str] = {
  'algorithm_option': 'algorithm',
  'server_optimizer_option': 'server_optimizer',
  'client_optimizer_option': 'client_optimizer',
  'cohort_option': 'cohort',
  'aggregator_option': 'aggregator',
  'attack_option': 'attack',
  'client_schedule_option': 'client_schedule',
  'server_schedule_option': 'server_schedule',
  'availability_option': 'availability',
  'speed_option': 'speed',
  'staleness_option': 'staleness',
}


def has_option(flag: str, base: str | None, pair: str) -> bool:
  """Returns whether what a flag names has an option.

  Args:
    flag: A key of `BASES`.
    base: The value of the flag `BASES[flag]`, such as 'power_of_choice'; None if it is not given.
    pair: The option as NAME=VALUE.

  Raises:
    ValueError: If there is nothing of the name `base`, or a user's file cannot be used.
  """
  if base is None:
    return False
  names = _OPTIONS[flag](base)
  name = pair.partition('=')[0]
  if name in names or name in {known.rpartition('.')[2] for known in names}:
    return True
  if flag != 'algorithm_option':
    return False
  # An option may be given with the name of its part where that is not needed. The part of a user's
  # file is not called as in `base`.
  part, _, short = name.rpartition('.')
  return short in names and part in registry.algorithm(base).name.split('+')


def _of_entry(find: Callable[[str], Any]) -> Callable[[str], Collection[str]]:
  """Returns a function from the name of a registry's entry to the names of its options."""

  def names(base: str) -> Collection[str]:
    entry = find(base)
    if not getattr(entry, 'takes_options', True):  # Its hyperparameters are flags.
      return ()
    return [option.name for option in entry.hyperparameters]

  return names


def _of_client_optimizer(base: str) -> Collection[str]:
  # Unlike those of the server's, the hyperparameters of a built-in one are no flags.
  return [option.name for option in registry.client_optimizer(base).hyperparameters]


def _of_cohort(base: str) -> Collection[str]:
  if user_code.is_reference(base):
    return _of_file(base)
  if base not in cohort_rules.COHORTS:
    return ()
  return [option.name for option in cohort_rules.options_of(base)]


def _of_availability(base: str) -> Collection[str]:
  if user_code.is_reference(base):
    return _of_file(base)
  return population.options_of(base)


def _of_staleness(base: str) -> Collection[str]:
  if user_code.is_reference(base):
    return _of_file(base)
  return synchrony.OPTIONS.get(base, ())


def _of_attack(base: str) -> Collection[str]:
  return ['classes'] if base == attacks.LABEL_FLIP else ['scale']


def _of_schedule(base: str) -> Collection[str]:
  if user_code.is_reference(base):
    return _of_file(base)
  return [option.name for option in registry.schedule(base).hyperparameters]


def _of_file(base: str) -> Collection[str]:
  """Returns the options of an object in a user's file; () for something built in."""
  if not user_code.is_reference(base):
    return ()
  return [option.name for option in user_parts.load(base, 'an object').hyperparameters]


_OPTIONS: Mapping[str, Callable[[str], Collection[str]]] = {
  'algorithm_option': _of_entry(registry.algorithm),
  'server_optimizer_option': _of_entry(registry.server_optimizer),
  'client_optimizer_option': _of_client_optimizer,
  'cohort_option': _of_cohort,
  'aggregator_option': _of_entry(table.aggregator),
  'attack_option': _of_attack,
  'client_schedule_option': _of_schedule,
  'server_schedule_option': _of_schedule,
  'availability_option': _of_availability,
  'speed_option': _of_file,
  'staleness_option': _of_staleness,
}
