"""Who takes part, with which data, and what their metrics are called."""

import types

import numpy as np
import pytest

from tests.helpers import fakes
from tff_adaptive import costs, population, registry, training
from tff_adaptive.training import cohorts


def test_drawing_depends_on_seed_and_round_only_and_repeats_no_client():
  drawn = cohorts.sample(1, 7, 1000, 50)
  np.testing.assert_array_equal(drawn, cohorts.sample(1, 7, 1000, 50))
  assert len(set(drawn)) == 50
  assert set(drawn) != set(cohorts.sample(1, 8, 1000, 50))
  assert set(drawn) != set(cohorts.sample(2, 7, 1000, 50))
  assert sorted(cohorts.sample(0, 0, 9, 9)) == list(range(9))
  counts = np.bincount(np.concatenate([cohorts.sample(0, t, 10, 3) for t in range(2000)]))
  assert abs(counts - 600).max() < 100  # Uniform: 600 each, five standard deviations.
  with pytest.raises(ValueError, match='from 1 to 9'):
    cohorts.sample(0, 0, 9, 10)


def config(clients=15, **options):
  return training.TrainingConfig(rounds=1, clients_per_round=clients, **options)


def take(clients, positions):
  """The cohort of round 1, and the data of a client without examples."""
  loader = cohorts.CohortLoader(clients, positions)
  try:
    return loader.take(1), loader.without_examples()
  finally:
    loader.close()


def test_max_examples_per_client_takes_the_first():
  cohort, (empty,) = take(fakes.Clients(), config(20, max_examples_per_client=2))
  assert (len(empty['x']), len(empty['y'])) == (0, 0)
  assert cohort.client_examples == [2] * 20
  for client_id, (data,) in zip(cohort.client_ids, cohort.data):
    assert fakes.Clients.client_ids[data['client']] == client_id
    np.testing.assert_array_equal(data['x'], fakes.Clients().load(client_id)['x'][:2])


@pytest.mark.parametrize('max_examples, seconds', [(None, 0.1 * 6 * 3), (2, 0.1 * 2 * 3)])
def test_the_simulation_counts_the_steps_of_the_examples_that_are_used(max_examples, seconds):
  """The largest of the clients has 6 examples; a step has one, and 3 epochs are trained."""
  model = costs.CostModel(registry.Counts(), num_parameters=1, batch_size=1, epochs=3)
  of_clients = population.Population(population.Always(), population.Speed(0.1))
  options = dict(max_examples_per_client=max_examples, population=of_clients, cost_model=model)
  simulation = cohorts.simulate(config(20, **options), fakes.Clients())
  no_transfer = population.Speed(0.1).times(['c00'], 0, 4, 4)
  transfer = float(no_transfer.download[0] + no_transfer.upload[0])
  plan = simulation.plan(1)
  assert plan.virtual_seconds == pytest.approx(seconds + transfer)
  sizes = [
    min(fakes.Clients().num_examples(c), max_examples or 6) for c in fakes.Clients.client_ids
  ]
  assert sorted(plan.steps.tolist()) == sorted(3 * size for size in sizes)


@pytest.mark.parametrize('max_examples', [None, 3])
def test_a_cohort_by_reference_is_the_same_and_loads_nothing(max_examples):
  settings = config(max_examples_per_client=max_examples)
  unloadable = fakes.Clients()
  unloadable.load = None
  loaders = [cohorts.CohortLoader(c, settings) for c in (fakes.Clients(), unloadable)]
  loaders[1].by_reference = True
  by_value, by_reference = (loader.take(1) for loader in loaders)
  for loader in loaders:
    assert not loader._ahead  # The round was the last.
    loader.close()
  assert by_reference.client_ids == by_value.client_ids
  assert by_reference.client_examples == by_value.client_examples
  assert [r.num_examples for r in by_reference.data] == by_value.client_examples
  loaded = loaders[0].source.load([r.key for r in by_reference.data])
  for one, other in zip(loaded, by_value.data):
    np.testing.assert_equal(one, other)


@pytest.mark.parametrize(
  'sizes, order', [([], []), ([7], [0]), ([1, 2], [0, 1]), ([2, 9, 2, 5, 4, 3], [5, 4, 3, 1, 0, 2])]
)
def test_the_four_largest_rise_and_the_others_fall(sizes, order):
  assert cohorts.working_order(sizes) == order


def _take(ids, x):
  data = {'x': x, 'y': np.zeros(len(x), np.int32)}
  clients = types.SimpleNamespace(client_ids=ids, load=lambda client_id: data)
  return take(clients, config(len(ids)))[0]


def test_a_client_that_is_there_twice_is_refused():
  for ids in ('baca', 'aab', 'baa'):
    with pytest.raises(ValueError, match="the client 'a' is in client_ids more than once"):
      _take([*ids], np.zeros([2, 1]))
  assert sorted(_take(['b', 'a', 'c'], np.zeros([2, 1])).client_ids) == ['a', 'b', 'c']


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_data_that_are_not_finite_are_named(bad):
  for x, row in (([[0.0], [1.0]], None), ([[0.0], [bad]], 1)):
    cohort = _take(['a'], np.array(x, np.float32))
    if row is None:
      cohort.check_finite()
      continue
    with pytest.raises(ValueError, match=f"of client 'a' are not finite: x, row 1, has {bad}"):
      cohort.check_finite()


def test_each_client_is_given_its_own_most_steps_in_the_working_order():
  clients = fakes.Clients()
  settings = config(
    cost_model=costs.CostModel(registry.Counts(), 1, 1, 2),
    population=population.Population(
      speed=population.Speed(1.0, speed_sigma=1.0), round_deadline=6.0, stragglers='partial'
    ),
  )
  simulation = cohorts.simulate(settings, clients)
  cohort, nobody = take(clients, settings)
  plan = simulation.plan(1)
  most_steps = dict(zip(plan.positions, plan.steps))
  assert len(set(most_steps.values())) > 3
  given = {int(data['client']): int(data['max_steps']) for (data,) in cohort.data}
  assert given == most_steps
  assert cohort.client_steps == [most_steps[int(data['client'])] for (data,) in cohort.data]
  assert cohort.client_examples == sorted(cohort.client_examples[:4]) + sorted(
    cohort.client_examples[4:], reverse=True
  )
  (data,) = nobody
  assert (len(data['x']), len(data['y']), int(data['max_steps'])) == (0, 0, 0)
  plain = config(cost_model=settings.cost_model, population=population.Population())
  ((whole,), *_) = take(clients, plain)[0].data
  assert 'max_steps' not in whole
