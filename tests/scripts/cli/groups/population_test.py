"""The flags of a population: defaults, what they make, what files say besides."""

import hashlib

import pytest

from scripts.cli import records
from tests.helpers import settings
from tff_adaptive import population


def _build(*arguments):
  run_settings = settings.of(*arguments)
  return run_settings.population.build(run_settings.given)


def _file(tmp_path, text, name='clients.csv'):
  path = tmp_path / name
  path.write_text(text)
  return str(path)


@pytest.mark.parametrize(
  'flag, expected',
  [
    ('--over_select=1.5', population.Population(over_select=1.5)),
    ('--seconds_per_step=0.25', population.Population(speed=population.Speed(0.25))),
  ],
)
def test_one_flag_makes_a_population_and_the_others_take_their_defaults(flag, expected):
  assert _build() is None  # None of them makes none.
  assert all(value in (None, ()) for value in vars(settings.of().population).values())
  assert _build(flag) == expected
  assert settings.of(flag).flat()['uplink'] == 1.0


def test_every_flag_arrives():
  clients = _build(
    '--availability=diurnal',
    '--availability_option=period=40',
    '--availability_option=unit=rounds',
    '--availability_option=share=0.25',
    '--seconds_per_step=2',
    '--speed_sigma=0.5',
    '--downlink=3',
    '--uplink=4',
    '--bandwidth_sigma=0.75',
    '--round_deadline=60',
    '--stragglers=partial',
    '--over_select=1.3',
    '--dropout_rate=0.2',
  )
  assert clients == population.Population(
    population.Diurnal(40, 'rounds', 0.25),
    population.Speed(2.0, 3.0, 4.0, 0.5, 0.75),
    round_deadline=60.0,
    over_select=1.3,
    stragglers='partial',
    dropout_rate=0.2,
  )
  assert clients.limits_steps
  one = _build('--availability=independent', '--availability_option=probability=0.7')
  assert one.availability == population.Independent(0.7)


def test_files_are_read_and_recorded_by_their_content(tmp_path):
  trace = _file(tmp_path, 'client,from,until\na,0,9\n', 'trace.csv')
  digest = hashlib.sha256(b'client,from,until\na,0,9\n').hexdigest()
  record = records.of(settings.of(f'--availability={trace}'))
  assert record.files == {'availability': {'path': trace, 'sha256': digest}}
  profiles = _file(tmp_path, 'client,uplink,seconds_per_step\na,2,0.5\n')
  clients = _build(f'--availability={trace}', f'--client_profiles={profiles}', '--downlink=7')
  assert clients.availability == population.Trace({'a': [(0, 9)]})
  expected = {'uplink': {'a': 2.0}, 'seconds_per_step': {'a': 0.5}}
  assert clients.speed == population.Speed(downlink=7.0, profiles=expected)
  phases = _file(tmp_path, 'client,phase,probability\na,0.5,1\n', 'phases.csv')
  with pytest.raises(ValueError, match='has the column probability, which needs --avail'):
    _build('--availability=diurnal', f'--client_profiles={phases}')
  chances = _file(tmp_path, 'client,probability\na,0.5\n', 'chances.csv')
  clients = _build('--availability=independent', f'--client_profiles={chances}')
  assert clients.availability == population.Independent({'a': 0.5})


_HALF = ('--availability=independent', '--availability_option=probability=0.5')


@pytest.mark.parametrize(
  'column, arguments, message',
  [
    ('uplink', ['--uplink=3'], '--uplink is in'),
    ('seconds_per_step', ['--speed_sigma=1'], '--speed_sigma is in'),
    ('downlink,uplink', ['--bandwidth_sigma=1'], 'as downlink and uplink: leave one'),
    ('phase', [], 'which needs --availability=diurnal, found always'),
    ('probability', [*_HALF], '--availability_option=probability is in'),
  ],
)
def test_what_a_file_and_a_flag_say_both_is_refused(tmp_path, column, arguments, message):
  values = ','.join(['0.5'] * len(column.split(',')))
  path = _file(tmp_path, f'client,{column}\na,{values}\n')
  with pytest.raises(ValueError) as caught:
    _build(f'--client_profiles={path}', *arguments)
  assert message in str(caught.value)
