"""A program's run says what it was, so that reports and `load_run` read it as any other."""

import dataclasses
import json
import os

import numpy as np
import pytest

import tff_adaptive
from tests.helpers import fakes, run_folders
from tff_adaptive import asynchrony as asynchrony_lib, costs, population, registry, runs, training
from tff_adaptive.runs import config as config_lib

COUNTS = (
  'rounds',
  'clients_per_round',
  'rounds_per_evaluation',
  'rounds_per_checkpoint',
  'max_examples_per_client',
)


def record(settings=None, **options):
  return training.TrainingConfig(**{'rounds': 3, 'clients_per_round': 1, **options}).record(
    settings
  )


def test_a_programs_run_serves_load_run(tmp_path):
  settings = {'algorithm': 'scaffold', 'client_learning_rate': 0.3}
  result = fakes.train(tmp_path / 'run', 2, settings=settings)
  run = tff_adaptive.load_run(str(tmp_path / 'run'))
  np.testing.assert_array_equal(run.weights[0], result.state.global_model_weights[0])
  assert run.settings['client_learning_rate'] == 0.3
  assert run.metric == 'accuracy'
  assert {**run.config['data'], 'client_ids': 0} == {'clients': 20, 'examples': 80, 'client_ids': 0}
  assert run.config['num_parameters'] == 3
  assert run.config['versions']['numpy'] == np.__version__


def test_a_resumed_run_notes_what_it_may_change_and_is_refused_the_rest(tmp_path):
  fakes.train(tmp_path, 2, settings={'algorithm': 'mine', 'rates': [1, 2]})
  fakes.train(tmp_path, 3, settings={'algorithm': 'mine', 'rates': (1, 2)}, metric='loss')
  again = config_lib.read(str(tmp_path))
  changes = {'rounds': [2, 3], 'metric': ['accuracy', 'loss']}
  assert changes.items() <= again['changes'][0].items()
  assert (again['settings']['rounds'], again['metric']) == (3, 'loss')
  files = {name: os.stat(tmp_path / name).st_mtime_ns for name in ('config.json', 'metrics.csv')}
  same = {'algorithm': 'mine', 'rates': [1, 2]}
  for options, words in (
    ({'settings': {'algorithm': 'mine'}}, r'rates was \[1, 2\] and is now None'),
    ({'settings': same, 'seed': 1}, 'seed was 3 and is now 1'),
    ({'settings': same, 'run_id': 'x'}, "the run_id was '' and is now 'x'"),
  ):
    with pytest.raises(runs.ResumeError, match=words):
      fakes.train(tmp_path, 8, **options)
  assert files == {name: os.stat(tmp_path / name).st_mtime_ns for name in files}


def test_what_changes_no_number_may_change():
  harmless = dict(rounds_per_evaluation=1, rounds_per_checkpoint=1)
  harmless |= dict(target=0.5, stop_at_target=True, early_stop='loss', patience=3, min_delta=0.1)
  harmless |= dict(
    keep_best=True, ledger=True, trace_client='c1', max_megabytes=3.0, max_gradients=9.0
  )
  usual = dict(rounds_per_evaluation=10, rounds_per_checkpoint=50)
  assert {**usual, 'seed': 0}.items() <= record().settings.items()
  before = run_folders.config(record().settings)
  model = costs.CostModel(registry.Counts(), 1, 1)
  changed = record(rounds=9, metric='loss', cost_model=model, **harmless)
  assert changed.refused_changes(before) == []
  assert len(record(max_examples_per_client=3).refused_changes(before)) == 1
  by_clock = {'virtual_seconds_per_evaluation', 'max_virtual_seconds'}
  assert set(record().change_no_number) == {*harmless, *by_clock}


def test_what_cannot_be_recorded_is_refused_before_anything_is_written(tmp_path):
  for settings, words in (
    ({'rounds': 3}, "'rounds', which `config` says already"),
    ({'metric': 'loss'}, "'metric', which `config` says already"),
    ({'rate': object()}, r"settings\['rate'\] is <object"),
  ):
    with pytest.raises(ValueError, match=words):
      fakes.train(tmp_path / 'run', 2, settings=settings)
  assert not (tmp_path / 'run').exists()
  (tmp_path / 'config.json').write_text('{')
  with pytest.raises(runs.ResumeError, match='cannot be read'):
    fakes.train(tmp_path)
  assert os.listdir(tmp_path) == ['config.json']


def test_another_population_or_with_one_another_cost_model_is_another_run():
  def model(batch_size):
    return costs.CostModel(registry.Counts(), 3, batch_size)

  assert 'cost_model' not in record(cost_model=model(2)).settings  # It only counts.
  clients = population.Population(round_deadline=60.0)
  before = run_folders.config(record(population=clients, cost_model=model(2)).settings)
  assert before['settings']['cost_model']['batch_size'] == 2
  same = record(population=clients, cost_model=model(np.int64(2)))
  assert same.refused_changes(before) == []
  (refused,) = record(population=clients, cost_model=model(1)).refused_changes(before)
  assert refused.startswith('cost_model was ')
  for other in (None, population.Population(round_deadline=61.0)):
    changes = record(population=other, cost_model=model(2)).refused_changes(before)
    assert changes[0].startswith('population was ')


def test_numpys_numbers_are_recorded_as_pythons():
  options = {'seed': np.int64(3), 'max_examples_per_client': np.int32(4), 'target': np.float32(0.5)}
  settings = json.loads(json.dumps(record(rounds=np.int64(2), **options).settings))
  assert settings['rounds'] == 2
  assert (settings['seed'], settings['max_examples_per_client'], settings['target']) == (3, 4, 0.5)


@pytest.mark.parametrize(
  'name, value, error',
  [
    *((n, 2.5, 'must be a whole number, found 2.5: give') for n in (*COUNTS, 'seed')),
    *((n, 0, 'must be at least 1, found 0: give') for n in COUNTS),
    ('seed', -1, 'must be at least 0, found -1: give'),
    ('stop_at_target', True, 'is given without a target: give one'),
    ('virtual_seconds_per_evaluation', 0, 'must be finite and above 0, found 0: give'),
    ('virtual_seconds_per_evaluation', 60, 'is given without a population'),
    ('asynchrony', asynchrony_lib.Buffered(1), 'is given without a population'),
    ('target', 'high', "must be a number, found 'high': give"),
  ],
)
def test_numbers_are_checked_by_their_fields(name, value, error):
  with pytest.raises((TypeError, ValueError)) as caught:
    record(**{name: value})
  assert str(caught.value).startswith(f'{name} {error}')


class _Half(asynchrony_lib.Buffered):
  def factor(self, tau):
    return 0.5**tau


@dataclasses.dataclass(frozen=True)
class _Base(asynchrony_lib.Buffered):
  base: float = 0.5

  def factor(self, tau):
    return self.base**tau


def _buffered(asynchrony):
  clients = population.Population()
  model = costs.CostModel(registry.Counts(), 3, 2)
  return record(population=clients, cost_model=model, asynchrony=asynchrony)


def test_own_factors_of_staleness_are_recorded():
  polynomial = _buffered(asynchrony_lib.Buffered(3)).settings['synchrony']
  assert polynomial == dataclasses.asdict(asynchrony_lib.Buffered(3))
  half = _buffered(_Half(3, max_staleness=3)).settings['synchrony']
  assert (half['kind'], half['staleness'], half['factors']) == (
    '_Half',
    'own',
    [1, 0.5, 0.25, 0.125],
  )
  before = run_folders.config(json.loads(json.dumps(_buffered(_Base(3)).settings)))
  assert _buffered(_Base(3)).refused_changes(before) == []
  for other in (_Base(3, base=0.4), _Half(3), asynchrony_lib.Buffered(3)):
    assert len(_buffered(other).refused_changes(before)) == 1


class _Share:
  """Some clients are available; not a dataclass."""

  def __init__(self, share, weights=()):
    self.share = share
    self.weights = np.asarray(weights)
    self._cache = object()

  def bind(self, client_ids, seed):
    return lambda number, seconds: np.arange(len(client_ids)) < self.share * len(client_ids)


def test_the_settings_of_an_own_availability_are_recorded():
  def record_with(*arguments):
    clients = population.Population(availability=_Share(*arguments))
    return record(population=clients, cost_model=costs.CostModel(registry.Counts(), 3, 2))

  before = run_folders.config(json.loads(json.dumps(record_with(0.5, [1.0]).settings)))
  assert record_with(0.5, [1.0]).refused_changes(before) == []
  assert len(record_with(0.6, [1.0]).refused_changes(before)) == 1
  assert len(record_with(0.5, [2.0]).refused_changes(before)) == 1
