"""The flags of a population: defaults, what they make, refusals that name the flag and the hint."""

import dataclasses
import hashlib
import json

import pytest

from scripts.cli import flags, records, resolve, run_folder
from scripts.cli.groups import population as group
from tff_adaptive import population

NAMES = [field.name for field in dataclasses.fields(group.Population)]


def _resolve(*arguments):
  return resolve.resolve(flags.parse(['train.py', '--task=digits', *arguments]))


def _build(*arguments):
  settings = _resolve(*arguments)
  return settings.population.build(settings.given)


def _file(tmp_path, text, name='clients.csv'):
  path = tmp_path / name
  path.write_text(text)
  return str(path)


def test_without_any_of_the_flags_there_is_no_population():
  plain = _resolve()
  assert plain.population.build(plain.given) is None
  for name in NAMES:
    assert plain.flat()[name] in (None, [])


@pytest.mark.parametrize('name', ['seconds_per_step', 'over_select', 'dropout_rate'])
def test_one_flag_makes_a_population_and_the_others_take_their_defaults(name):
  value = {'over_select': 1.5}.get(name, 0.25)
  found = _resolve(f'--{name}={value}')
  made = found.population.build(found.given)
  default = population.Population()
  assert isinstance(made.availability, population.Always)
  for field in ('over_select', 'dropout_rate', 'stragglers', 'round_deadline'):
    assert getattr(made, field) == (value if field == name else getattr(default, field))
  expected = {'seconds_per_step': 0.25} if name == 'seconds_per_step' else {}
  assert made.speed == population.Speed(**expected)
  assert found.flat()['uplink'] == 1.0


def test_every_flag_arrives():
  made = _build(
    *('--availability=diurnal', '--availability_option=period=40'),
    *('--availability_option=unit=rounds', '--availability_option=share=0.25'),
    *('--seconds_per_step=2', '--speed_sigma=0.5', '--downlink=3', '--uplink=4'),
    *('--bandwidth_sigma=0.75', '--round_deadline=60', '--stragglers=partial'),
    *('--over_select=1.3', '--dropout_rate=0.2'),
  )
  assert made == population.Population(
    population.Diurnal(40, 'rounds', 0.25),
    population.Speed(2.0, 3.0, 4.0, 0.5, 0.75),
    round_deadline=60.0,
    over_select=1.3,
    stragglers='partial',
    dropout_rate=0.2,
  )
  assert made.limits_steps
  one = _build('--availability=independent', '--availability_option=probability=0.7')
  assert one.availability == population.Independent(0.7)


def test_files_are_read(tmp_path):
  trace = _file(tmp_path, 'client,from,until\na,0,9\n', 'trace.csv')
  profiles = _file(tmp_path, 'client,uplink,seconds_per_step\na,2,0.5\n')
  made = _build(f'--availability={trace}', f'--client_profiles={profiles}', '--downlink=7')
  assert made.availability == population.Trace({'a': [(0, 9)]})
  expected = {'uplink': {'a': 2.0}, 'seconds_per_step': {'a': 0.5}}
  assert made.speed == population.Speed(downlink=7.0, profiles=expected)
  phases = _file(tmp_path, 'client,phase,probability\na,0.5,1\n', 'phases.csv')
  with pytest.raises(ValueError, match='has the column probability, which is of --avail'):
    _build('--availability=diurnal', f'--client_profiles={phases}')
  chances = _file(tmp_path, 'client,probability\na,0.5\n', 'chances.csv')
  made = _build('--availability=independent', f'--client_profiles={chances}')
  assert made.availability == population.Independent({'a': 0.5})


def test_a_file_that_was_changed_since_is_refused(tmp_path):
  trace = _file(tmp_path, 'client,from,until\na,0,9\n', 'trace.csv')
  folder = tmp_path / 'run'
  settings = _resolve(f'--availability={trace}', f'--output_dir={folder}')
  record = records.of(settings)
  digest = hashlib.sha256(b'client,from,until\na,0,9\n').hexdigest()
  assert record.files == {'availability': {'path': trace, 'sha256': digest}}
  record.open(str(folder), {'clients': 1}, 1)
  assert json.loads((folder / 'config.json').read_text())['files'] == record.files
  run_folder.read_config(str(folder), records.of(settings))
  _file(tmp_path, 'client,from,until\na,0,8\n', 'trace.csv')
  with pytest.raises(ValueError, match=r'the file of --availability, .* was changed since'):
    run_folder.read_config(str(folder), records.of(settings))


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['--availability=dayly'], "--availability: unknown availability 'dayly'"),
    (['--availability=diurnal', '--availability_option=day=3'], 'diurnal has no such option; it'),
    (['--availability_option=share=0.5'], '--availability_option=share=...: always has no such'),
    (
      ['--availability=diurnal', '--availability_option=share=2'],
      '--availability_option: share must be in (0, 1], found 2',
    ),
    (['--availability=diurnal', '--availability_option=unit=days'], '--availability_option: unit'),
    (['--client_profiles=clients.txt'], '--client_profiles=clients.txt: give a file whose name'),
    (['--stragglers=wait', '--round_deadline=9'], "--stragglers: unknown stragglers 'wait'"),
    (['--stragglers=partial'], '--stragglers is for --round_deadline: give it too'),
    (['--seconds_per_step=0'], '--seconds_per_step must be finite and above 0'),
    (['--speed_sigma=-1'], '--speed_sigma must be finite and at least 0'),
    (['--over_select=0.5'], '--over_select must be finite and at least 1'),
    (['--dropout_rate=1'], '--dropout_rate must be in [0, 1)'),
    (['--target=nan'], '--target must be finite'),
  ],
)
def test_refusals(arguments, message):
  with pytest.raises(ValueError) as caught:
    _resolve(*arguments)
  assert message in str(caught.value)


@pytest.mark.parametrize(
  'column, arguments, message',
  [
    ('uplink', ['--uplink=3'], '--uplink is in'),
    ('seconds_per_step', ['--speed_sigma=1'], '--speed_sigma is in'),
    ('downlink,uplink', ['--bandwidth_sigma=1'], 'as downlink and uplink: leave one'),
    ('phase', [], 'which is of --availability=diurnal; found always'),
    (
      'probability',
      ['--availability=independent', '--availability_option=probability=0.5'],
      '--availability_option=probability=... is in',
    ),
  ],
)
def test_what_a_file_and_a_flag_say_both_is_refused(tmp_path, column, arguments, message):
  values = ','.join(['0.5'] * len(column.split(',')))
  path = _file(tmp_path, f'client,{column}\na,{values}\n')
  with pytest.raises(ValueError) as caught:
    _build(f'--client_profiles={path}', *arguments)
  assert message in str(caught.value)


def test_no_epsilon_is_promised_for_cohorts_that_are_drawn_otherwise():
  with pytest.raises(ValueError, match='its epsilon supposes that each round is drawn from all'):
    _build('--aggregator=dp_gaussian', '--target_epsilon=8', '--dropout_rate=0.1')


def test_a_file_that_is_not_there_is_named(tmp_path):
  with pytest.raises(ValueError, match=r'no\.csv cannot be read'):
    _build(f'--availability={tmp_path}/no.csv')
  with pytest.raises(ValueError, match=r'--availability=.*no\.csv cannot be read'):
    records.of(_resolve(f'--availability={tmp_path}/no.csv'))
