"""Flags come from Settings and the registry; what cannot be parsed is reported in one line."""

import dataclasses
import types

import tff_adaptive_tasks as tasks
from scripts import report
from scripts.cli import flags, plan, resolve, settings


def test_flagfiles_are_read_and_later_flags_win(tmp_path):
  path = tmp_path / 'some.flags'
  path.write_text('# a comment\n--task=digits\n--tau=0.25\n--rounds=7\n')
  found = flags.parse(['train.py', f'--flagfile={path}', '--rounds=9'])
  assert found == {'task': 'digits', 'tau': 0.25, 'rounds': 9}


def test_a_command_line_gives_what_was_parsed():
  given = flags.parse(
    ['', '--seed=2', '--noxla', '--fill_last_batch', '--task_option=a=1', '--task_option=b=x']
  )
  line = flags.command_line(given)
  assert {'--seed=2', '--xla=false', '--task_option=a=1', '--task_option=b=x'} <= {*line}
  assert flags.parse(['', *line]) == given
  assert (given['xla'], given['fill_last_batch']) == (False, True)


def test_a_task_is_loaded_with_what_the_flags_say(monkeypatch):
  seen = {}
  monkeypatch.setattr(tasks, 'load', lambda name, **given: seen.update(given, name=name))
  values = types.SimpleNamespace(task='digits', data_dir='here', seed=7)
  flags.load_task(values, {'alpha': 0.5})
  assert seen == {'name': 'digits', 'data_dir': 'here', 'seed': 7, 'alpha': 0.5}


def test_every_name_is_one_flag():
  names = [flag.name for flag in flags.table()]
  assert len({*names}) == len(names)
  flat = resolve.resolve(algorithm='ada_best').flat()  # Only what has a meaning has a value.
  assert {*flat} == {*names}
  assert (flat['beta'], flat['tau'], flat['target']) == (0.96, None, None)


def test_what_a_flag_needs_and_what_it_stands_in_place_of():
  def by(key):
    pairs = [(field.metadata[key], field.name) for field in settings.FIELDS if field.metadata[key]]
    return {other: {name for o, name in pairs if o == other} for other, _ in pairs}

  assert by('needs') == {
    'local_steps': {'random_local_steps', 'continue_batches'},
    'round_deadline': {'stragglers'},
    'synchrony=buffered': {'buffer_size', 'concurrency', 'max_staleness', 'mixing'}
    | {'staleness', 'staleness_option'},
    'aggregator=dp_gaussian or dp_tree': {'target_epsilon', 'delta', 'noise_seed'},
    'rounds_per_client_evaluation': {'client_evaluation_clients', 'personalization_epochs'},
    'engine=graph': {'clients_per_step', 'parallel_clients', 'ray', 'subrounds'},
    'ray': {'ray_workers', 'cpus_per_worker', 'gpus_per_worker', 'memory_per_worker'},
    'target': {'stop_at_target'},
  }
  assert by('instead_of') == {
    'clients_per_round': {'participation', 'buffer_size'},
    'client_epochs': {'local_steps'},
    'rounds_per_evaluation': {'virtual_seconds_per_evaluation'},
  }


def test_groups_do_not_change_and_their_flags_say_what_they_need_and_may_be():
  groups = (*settings.GROUPS.values(), plan.Plan, report._Report)
  assert all(group.__dataclass_params__.frozen for group in groups)
  fields = [field for group in groups for field in dataclasses.fields(group)]
  assert {f.name for f in fields if f.metadata['choices']} == {
    *('client_optimizer_state', 'stragglers', 'synchrony', 'staleness', 'aggregator', 'engine'),
    *('device', 'mixed_precision', 'client_state_store', 'resume_from'),
    *('search', 'prune', 'form', 'x', 'clients'),
  }
  assert {f.name for f in fields[len(settings.FIELDS) :] if f.metadata['needs']} == {
    *('range', 'trials', 'search_seed', 'first_rung', 'reduction_factor', 'metric', 'label_by'),
    *('x', 'rows', 'columns', 'clients', 'target', 'window', 'level', 'log_scale', 'formats'),
  }
