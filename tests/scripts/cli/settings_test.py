"""What settings decide: what is recorded, what a resumed run may change, how clients train."""

import dataclasses
import hashlib

import pytest

from scripts.cli import hyperparameters, resolve, settings
from scripts.cli.groups import what
from tests.helpers import user_files

OWN = """
  import dataclasses
  from tff_adaptive import corrections

  @dataclasses.dataclass(frozen=True)
  class Damped(corrections.Correction):
    strength: float = 0.5
"""


def test_every_field_is_in_one_group_and_has_a_help():
  names = [field.name for field in settings.FIELDS]
  assert len({*names}) == len(names)
  assert not {*names} & {*hyperparameters.named()}
  assert all(field.metadata['help'] for field in settings.FIELDS)
  needed = {field.metadata['needs'] for field in settings.FIELDS} - {''}
  assert needed <= {*names}


def test_what_is_recorded_names_every_flag_and_only_those_with_a_meaning_have_a_value():
  flat = resolve.resolve(algorithm='ada_best', task_option=['num_clients=20']).flat()
  assert {*flat} == {*hyperparameters.named(), *(field.name for field in settings.FIELDS)}
  assert (flat['beta'], flat['tau'], flat['target']) == (0.96, None, None)
  assert flat['task_option'] == ['num_clients=20']


def test_a_users_own_hyperparameters_are_recorded_as_options_and_the_file_by_its_content(tmp_path):
  path = user_files.write(tmp_path, 'mine.py', OWN)
  found = resolve.resolve(algorithm=f'{path}:Damped')
  flat = found.flat()
  assert flat['algorithm_option'] == ['strength=0.5']
  assert 'strength' not in flat
  with open(path, 'rb') as file:
    digest = hashlib.sha256(file.read()).hexdigest()
  assert found.files() == {'algorithm': {'path': path, 'sha256': digest}}


def test_a_resumed_run_may_change_what_changes_no_number():
  free = {*settings.CHANGE_NO_NUMBER}
  assert {
    'output_dir',
    'data_dir',
    'parallel_clients',
    'client_state_store',
    'ray',
    'log_to',
  } <= free
  decided = {
    f.name for group in (what.What, *map(type, _numeric())) for f in dataclasses.fields(group)
  }
  assert not free & (decided - {'client_state_store', 'client_state_dir'})


def _numeric():
  found = resolve.resolve()
  return found.training, found.rates, found.clients, found.population, found.aggregation


def test_a_value_is_refused_by_its_own_field():
  settings.check('rounds', 5)
  with pytest.raises(ValueError, match='--rounds must be at least 1, found 0: give 1 or more'):
    settings.check('rounds', 0)
  with pytest.raises(ValueError, match='--rounds must be a whole number'):
    settings.check('rounds', 1.5)
  with pytest.raises(ValueError, match=r"--engine: unknown engine 'grap'.*Did you mean graph"):
    settings.check('engine', 'grap')


def test_clients_stop_at_their_own_step_only_where_stragglers_do_a_part():
  task = type('Task', (), {'unit_starts': None})
  for more, limits in (({}, False), ({'stragglers': 'partial', 'round_deadline': 9.0}, True)):
    found = resolve.resolve(client_epochs=2, **more)
    assert found.client_training(task).batching.step_limits == limits
  assert found.client_training(task).batching.epochs == 2
  assert found.client_training(task, epochs=7).batching.epochs == 7
