"""Cohorts, aggregators, behaviour of clients and schedules from files, for scripts/train.py."""

import json
import os
import pathlib
import re
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from scripts import train as train_script
from scripts.cli import search_space
from tests.helpers import fakes, settings
from tff_adaptive import schedules

GUIDE = pathlib.Path(__file__).parents[2] / 'docs' / 'guide'
MOST_LINES = 20


def example(tmp_path, page):
  """Writes the Python example of a page of the guide to a file, and returns the file's path."""
  text = (GUIDE / f'{page}.md').read_text(encoding='utf-8')
  (block,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  assert len([line for line in block.splitlines() if line.strip()]) <= MOST_LINES
  return write(tmp_path, 'mine.py', block)


def write(tmp_path, name, text):
  path = tmp_path / name
  path.write_text(textwrap.dedent(text))
  return str(path)


def train(folder, *flags):
  """Runs scripts/train.py in this process; returns its exit code."""
  always = ('--task=least_squares', '--task_option=num_clients=12', '--algorithm=fed_avg')
  often = ('--rounds_per_evaluation=2', '--rounds_per_checkpoint=2', '--seed=4')
  with fakes.no_figures():
    return train_script.main(
      ['train.py', *always, *often, '--clients_per_round=4', f'--output_dir={folder}', *flags]
    )


def config(folder):
  with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
    return json.load(file)


@pytest.mark.exhaustive
def test_the_guides_cohort_trains_resumes_and_is_recorded(tmp_path, capsys):
  path = example(tmp_path, 'choosing_clients')
  whole = str(tmp_path / 'whole')
  halves = str(tmp_path / 'halves')
  flags = [f'--cohort={path}:LongestAway', '--cohort_option=candidates=6']
  assert train(whole, *flags, '--rounds=5') == 0
  assert train(halves, *flags, '--rounds=2') == 0
  assert train(halves, *flags, '--rounds=5') == 0
  rows = fakes.rows(whole)
  assert rows == fakes.rows(halves)
  assert [row['candidates'] for row in rows[1:]] == ['6'] * 5
  recorded = config(whole)
  assert recorded['settings']['cohort_option'] == ['candidates=6']
  assert recorded['files']['cohort']['path'] == path
  assert len(recorded['files']['cohort']['sha256']) == 64
  with open(path, 'a', encoding='utf-8') as file:
    file.write('# Another remark.\n')
  assert train(halves, *flags, '--rounds=7') == 2
  assert f"the file of --cohort, '{path}', has changed since" in capsys.readouterr().err


def test_the_guides_aggregator_trains_and_equals_numpy(tmp_path):
  path = example(tmp_path, 'robust_aggregation')
  flags = [f'--aggregator={path}:nearest_part', '--aggregator_option=share=0.6', '--rounds=2']
  assert train(str(tmp_path / 'run'), *flags) == 0
  assert config(str(tmp_path / 'run'))['files']['aggregator']['path'] == path
  scope = {}
  exec(pathlib.Path(path).read_text(encoding='utf-8'), scope)
  rule = scope['nearest_part'](None, share=0.6)._rule
  rows = np.random.default_rng(0).normal(size=(5, 3)).astype('f')
  distances = np.linalg.norm(rows - np.median(rows, 0), axis=1)
  expected = rows[np.argsort(distances)[:3]].mean(0)
  aggregate = rule.combine((), tf.constant(rows), tf.ones([5])).aggregate
  np.testing.assert_allclose(aggregate, expected, rtol=1e-6)


BEHAVIOUR = """
  import numpy as np

  import helpers_beside


  class Weekdays:
    def __init__(self, days: int = 2):
      self.days = days

    def bind(self, client_ids, seed):
      turn = np.arange(len(client_ids)) % self.days
      return lambda round_number, seconds: turn == round_number % self.days


  class Steady:
    def __init__(self, seconds: float = 1.0):
      self.seconds = seconds

    def times(self, client_ids, seed, bytes_down, bytes_up):
      return helpers_beside.times(len(client_ids), self.seconds)


  def square(tau, power: float = 2.0):
    return 1 / (1 + tau) ** power


  def halving(base_rate, every: int = 2):
    return lambda t: base_rate * 0.5 ** (t // every)
"""

HELPER = """
  import numpy as np
  from tff_adaptive.population import speed


  def times(count, seconds):
    return speed.Times(*(np.full(count, seconds) for _ in range(3)))
"""


@pytest.fixture(scope='module')  # Two files may not import different modules of one name.
def behaviour(tmp_path_factory):
  folder = tmp_path_factory.mktemp('behaviour')
  write(folder, 'helpers_beside.py', HELPER)
  return write(folder, 'behaviour.py', BEHAVIOUR)


def test_availability_and_speed_are_classes_with_options(tmp_path, behaviour):
  flags = [
    f'--availability={behaviour}:Weekdays',
    '--availability_option=days=3',
    f'--speed={behaviour}:Steady',
    '--speed_option=seconds=2',
    '--rounds=3',
    '--batch_size=0',
    '--client_epochs=5',
  ]
  folder = str(tmp_path / 'run')
  assert train(folder, *flags) == 0
  rows = fakes.rows(folder)[1:]
  assert [row['available'] for row in rows] == ['4', '4', '4']
  assert [float(row['virtual_seconds']) for row in rows] == [2 + 5 * 2 + 2] * 3
  files = config(folder)['files']
  assert set(files) == {'availability', 'speed'}
  assert list(files['speed']['modules']) == ['helpers_beside.py']


def test_a_factor_of_staleness_is_a_function_of_tau(behaviour):
  flags = ['--synchrony=buffered', '--concurrency=5', f'--staleness={behaviour}:square']
  built = settings.of(*flags, '--staleness_option=power=1').synchrony.build()
  assert [built.factor(tau) for tau in (0, 1, 3)] == [1.0, 0.5, 0.25]
  assert built.record()['factors'][:2] == [1.0, 0.5]


def test_a_schedule_is_a_function_of_the_base_rate(behaviour):
  name = f'{behaviour}:halving'
  flags = ['--client_learning_rate=0.8', f'--client_schedule={name}']
  rates = settings.of(*flags, '--client_schedule_option=every=1').rates
  assert [rates.client(t) for t in (0, 1, 2)] == [0.8, 0.4, 0.2]
  in_graph = schedules.in_graph(rates.client)
  assert float(in_graph(tf.constant(2))) == pytest.approx(0.2)


ALL = """
  import dataclasses

  import helpers_beside
  from tff_adaptive import corrections

  def first(situation, later: int = 0):
    return situation.available[later : later + situation.size]

  def mean(cohort, scale: float = 1.0):
    return None

  @dataclasses.dataclass(frozen=True)
  class Half(corrections.Compressor):
    name = 'half'

    def compress(self, values, seed):
      return values / 2

    def message_bits(self, size):
      return 32 * size
"""


def test_each_flag_for_own_code_records_its_file_and_the_modules_that_this_imports(behaviour):
  path = write(pathlib.Path(behaviour).parent, 'all.py', ALL)
  flags = {
    'algorithm': f'fed_avg+{path}:Half',
    'aggregator': f'{path}:mean',
    'availability': f'{behaviour}:Weekdays',
    'speed': f'{behaviour}:Steady',
    'client_schedule': f'{behaviour}:halving',
    'server_schedule': f'{behaviour}:halving',
  }
  synchronous = {**flags, 'cohort': f'{path}:first'}
  buffered = {**flags, 'staleness': f'{behaviour}:square', 'synchrony': 'buffered'}
  for given, more in ((synchronous, []), (buffered, ['--concurrency=20'])):
    run = settings.of(*(f'--{name}={value}' for name, value in given.items()), *more)
    sources = run.sources()
    assert set(sources) == set(given) - {'synchrony'}
    for source in sources.values():
      assert source.path in (path, behaviour)
      assert [name for name, _ in source.modules] == ['helpers_beside.py']


def test_own_code_and_its_options_are_swept_beside_what_is_built_in(behaviour):
  path = write(pathlib.Path(behaviour).parent, 'all.py', ALL)
  options = {
    'cohort': ('uniform', f'{path}:first', 'later=1'),
    'aggregator': ('mean', f'{path}:mean', 'scale=2'),
    'availability': ('always', f'{behaviour}:Weekdays', 'days=3'),
    'client_schedule': ('constant', f'{behaviour}:halving', 'every=3'),
    'algorithm': ('fed_avg', f'fed_avg+{path}:Half', 'half.feedback=ef14'),
  }
  for flag, (built_in, of_file, option) in options.items():
    space = search_space.Space({flag: [built_in, of_file], f'{flag}_option': [option]}, {})
    runs = space.grid('runs')
    assert [run.given[flag] for run in runs] == [built_in, of_file]
    assert [list(run.given.get(f'{flag}_option', ())) for run in runs] == [[], [option]]


BROKEN = """
  nothing = 3

  def needs_more(base, other):
    return None

  def grows(tau):
    return 'much'

  class Empty:
    def __init__(self, option: dict = {}):
      pass

  class Bare:
    pass
"""


@pytest.mark.parametrize(
  'flag, name, words',
  [
    ('cohort', 'nothing', 'is int: give a function of a population.Situation'),
    ('cohort', 'missing', 'defines no missing'),
    ('cohort', 'Empty', 'has the option option of the type .*dict'),
    ('cohort', 'Bare', 'Bare is no function of a population.Situation'),
    ('availability', 'Bare', 'Bare has no method bind'),
    ('speed', 'Bare', 'Bare has no method times'),
    ('client_schedule', 'nothing', 'is int: give a function of the base rate'),
    ('staleness', 'grows', r"grows\(0\) is 'much': give a finite number"),
    ('aggregator', 'nothing', 'is int: give a function of a cohort'),
  ],
)
def test_what_a_file_has_not_is_refused_in_one_line_that_names_the_flag(
  tmp_path, flag, name, words
):
  path = write(tmp_path, 'broken.py', BROKEN)
  if flag == 'staleness':
    more = ['--synchrony=buffered', '--concurrency=12']
  else:
    more = []
  with pytest.raises(ValueError, match=f'--{flag}.*{words}') as caught:
    settings.of(f'--{flag}={path}:{name}', *more)
  assert '\n' not in str(caught.value)
