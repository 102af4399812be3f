"""Rules: each is asked, and says in one line what does not go together."""

import inspect

import pytest

from scripts.cli import client_rules, machine_rules, rules
from tests.helpers import settings as settings_lib
from tff_adaptive import corrections, registry
from tff_adaptive_tasks import catalog


@pytest.mark.parametrize(
  'name, message',
  [
    ('acuracy', "unknown metric 'acuracy'. Did you mean accuracy? Choose one of: loss, accuracy."),
    ('validation_acuracy', 'Did you mean accuracy?'),
    ('inference_r2', 'one of: loss, accuracy, or give --metric=r2 too, which adds it.'),
    ('f1', 'or give --metric=f1 too'),
    *((name, None) for name in (None, 'loss', 'validation_accuracy', 'inference_loss')),
    *((name, None) for name in ('train_loss', 'clients_heldout_accuracy', 'theta_norm')),
  ],
)
def test_early_stop_names_a_metric_of_the_model_or_a_column(name, message):
  if message is None:
    rules.check_early_stop(name, ('loss', 'accuracy'))
    return
  with pytest.raises(ValueError) as error:
    rules.check_early_stop(name, ('loss', 'accuracy'))
  assert str(error.value).startswith(f'--early_stop={name}: ')
  assert message in str(error.value)


def test_every_rule_is_asked():
  of_settings = set()
  for module in (rules, client_rules, machine_rules):
    for name, function in inspect.getmembers(module, inspect.isfunction):
      if name.startswith('_') and function.__module__ == module.__name__:
        of_settings.add(function)
  assert set(rules.RULES) == of_settings
  assert len(rules.RULES) == len(of_settings)


def test_settings_by_default_break_no_rule():
  settings = settings_lib.of()
  assert [rule(settings) for rule in rules.RULES] == [None] * len(rules.RULES)


_PART = """
import dataclasses
from tff_adaptive import corrections

@dataclasses.dataclass(frozen=True)
class First(corrections.Correction):
  def exchange(self, client):
    return client.theta_0

@dataclasses.dataclass(frozen=True)
class Alone(corrections.Correction):
  refuses_loss_gradient = 'it is alone'
"""


def test_what_a_part_of_a_users_own_declares_counts_as_for_a_built_in_one(tmp_path):
  path = tmp_path / 'parts.py'
  path.write_text(_PART)
  buffered = ['--synchrony=buffered', '--concurrency=9']
  with pytest.raises(ValueError, match=r'--synchrony=buffered does not go with .*exchange values'):
    settings_lib.of(f'--algorithm={path}:First', *buffered)
  with pytest.raises(ValueError, match=r'--sam_rho: .* cannot be combined with sam: it is alone'):
    settings_lib.of(f'--algorithm={path}:Alone', '--sam_rho=0.1')


def test_the_algorithms_that_wait_for_an_exchange_are_those_whose_part_has_one():
  refused = set()
  for name in registry.ALGORITHMS:
    flags = ['--synchrony=buffered', '--concurrency=9', f'--algorithm={name}']
    try:
      settings_lib.of(*flags, '--participation=1')
    except ValueError as error:
      if 'exchange values before any of them trains' in str(error):
        refused.add(name)
  assert refused == {'mime'}
  assert corrections.Mime.overrides('exchange')


def test_changes_are_not_sent_to_clients_that_begin_at_any_step():
  with pytest.raises(ValueError, match=r'--synchrony=buffered .* sign_down sends changes'):
    settings_lib.of('--algorithm=fed_avg+sign_down', '--synchrony=buffered', '--concurrency=9')
  settings_lib.of('--algorithm=fed_avg+sign', '--synchrony=buffered', '--concurrency=9')


@pytest.mark.parametrize('task', catalog.names())
def test_a_task_says_which_option_makes_its_model_a_compiled_one(task):
  has_lstm = task in ('shakespeare', 'stackoverflow_nwp')
  if has_lstm:
    expected = 'lstm=compiled'
  else:
    expected = ''
  assert catalog.compiled_option(task, {'lstm': 'compiled'}) == expected
  assert catalog.compiled_option(task, {'lstm': 'tensorflow'}) == ''


def test_a_data_folder_is_of_use_and_exists(tmp_path):
  rules.check_data_dir('emnist_cr', str(tmp_path))
  rules.check_data_dir('digits', None)
  with pytest.raises(ValueError, match='--data_dir has no meaning for --task=digits'):
    rules.check_data_dir('digits', str(tmp_path))
  with pytest.raises(ValueError, match='there is no such folder'):
    rules.check_data_dir('emnist_cr', str(tmp_path / 'none'))
