"""Flags come from Settings and the registry; what cannot be parsed is reported in one line."""

import types

import tff_adaptive_tasks as tasks
from scripts.cli import flags, resolve


def test_flagfiles_are_read_later_flags_win_and_a_command_line_gives_the_same(tmp_path):
  path = tmp_path / 'some.flags'
  path.write_text('# a comment\n--task=digits\n--tau=0.25\n--rounds=7\n')
  parsed = flags.parse(['train.py', f'--flagfile={path}', '--rounds=9'])
  assert parsed == {'task': 'digits', 'tau': 0.25, 'rounds': 9}
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
