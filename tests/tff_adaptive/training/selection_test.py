"""Runs whose cohorts follow a rule: the same when resumed, and their costs counted."""

import numpy as np
import pytest

from tests.helpers import fakes
from tff_adaptive import costs, population, registry, runs, training
from tff_adaptive.population import choosing
from tff_adaptive.training import cohorts

COSTS = costs.CostModel(registry.Counts(), num_parameters=250_000, batch_size=2)  # 1 MB.
SLOW = population.Population(
  population.Always(),
  population.Speed(seconds_per_step=1.0, downlink=1.0, uplink=1.0, speed_sigma=0.8),
  over_select=1.3,
  dropout_rate=0.1,
)


def losses(weights, clients):
  """Mean squared distances to the weights, as a loss of each client, and their squares."""
  rows = []
  for arrays in clients:
    of_examples = np.square(arrays['x'] - weights[0]).mean(1).astype(float)
    rows.append([of_examples.mean(), np.square(of_examples).mean()])
  return np.array(rows)


def without_weights(rule):
  """The rule with its weights left out: the process in NumPy takes none."""

  class Unweighted:
    needs = choosing.needs_of(rule)

    def __call__(self, situation):
      return rule(situation).positions

  return Unweighted()


RULES = {
  'power_of_choice': population.PowerOfChoice(candidates=8),
  'oort': population.Oort(pacer_step=3),
  'by_norms': without_weights(population.Importance()),
  'by_losses': without_weights(population.Importance(by='losses')),
  'shuffled': population.Shuffled(),
  'cyclic': population.Cyclic(),
  'stratified': population.Stratified(),
}


def train(folder, rounds, rule, **options):
  process = fakes.MeasuringProcess()
  return fakes.train(folder, rounds, process, cohort=rule, client_losses=losses, **options)


@pytest.mark.parametrize('clients', [None, SLOW], ids=['all_finish', 'population'])
@pytest.mark.parametrize('name', RULES)
def test_a_resumed_run_has_the_cohorts_of_an_uninterrupted_one(tmp_path, name, clients):
  options = {'cost_model': COSTS, 'population': clients}
  whole = train(tmp_path / 'whole', 14, RULES[name], **options)
  for rounds in (3, 9, 14):
    parts = train(tmp_path / 'parts', rounds, RULES[name], **options)
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  for one, other in zip(whole.state.global_model_weights, parts.state.global_model_weights):
    np.testing.assert_array_equal(one, other)


class Interrupts(training.Callback):
  """Fails in a round, when the clients of that round have been chosen and trained."""

  def __init__(self, number):
    self._number = number

  def round_begin(self, number):
    self._now = number

  def columns(self):
    if self._now == self._number:
      raise KeyboardInterrupt
    return {}


@pytest.mark.parametrize('name', ['oort', 'by_norms', 'by_losses'])
def test_a_round_that_fails_leaves_no_trace_in_the_checkpoint(tmp_path, name):
  options = {'cost_model': COSTS, 'population': SLOW}
  train(tmp_path / 'whole', 9, RULES[name], **options)
  with pytest.raises(KeyboardInterrupt):
    train(tmp_path / 'parts', 9, RULES[name], callbacks=[Interrupts(6)], **options)
  train(tmp_path / 'parts', 9, RULES[name], **options)
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')


@pytest.mark.parametrize('name', ['power_of_choice', 'oort'])
def test_a_rule_that_looks_at_the_model_differs_from_uniform_draws(name):
  with_rule = train(None, 6, RULES[name])
  uniform = fakes.train(None, 6, fakes.MeasuringProcess())
  assert not np.array_equal(
    with_rule.state.global_model_weights[0], uniform.state.global_model_weights[0]
  )


@pytest.mark.parametrize('rule', [None, population.Uniform()])
def test_uniform_draws_are_the_default(rule):
  result = fakes.train(None, 5, fakes.MeasuringProcess(), cohort=rule)
  expected = fakes.train(None, 5, fakes.MeasuringProcess())
  np.testing.assert_array_equal(
    result.state.global_model_weights[0], expected.state.global_model_weights[0]
  )


def cohort_of(rule, number=1, weights=None, **options):
  config = training.TrainingConfig(20, 5, seed=3, cohort=rule, **options)
  loader = cohorts.CohortLoader(fakes.Clients(), config, losses)
  try:
    return loader, loader.take(number, weights)
  finally:
    loader.close()


def test_a_cohort_is_loaded_ahead_only_if_it_needs_nothing_of_the_round_before():
  start = [np.zeros(3)]
  for rule in (None, population.Cyclic(), population.BySize()):
    loader, _ = cohort_of(rule)
    assert loader.loads_ahead
    assert list(loader._ahead) == [2]
  for rule in (population.PowerOfChoice(), population.Oort(), population.Importance()):
    loader, _ = cohort_of(rule, weights=start)
    assert not loader.loads_ahead
    assert not loader._ahead


def test_power_of_choice_takes_the_clients_with_the_highest_losses():
  """The clients' inputs are around their numbers, so that late ones have the highest losses."""
  start = [np.zeros(3, np.float32)]
  _, cohort = cohort_of(population.PowerOfChoice(candidates=20), weights=start)
  of_all = losses(start, [fakes.Clients().load(name) for name in fakes.Clients.client_ids])[:, 0]
  assert sorted(cohort.positions) == sorted(np.argsort(of_all)[-5:].tolist())


def test_candidates_downloads_evaluations_and_seconds_are_counted(tmp_path):
  speed = population.Speed(seconds_per_step=3.0, downlink=1.0, uplink=0.5)
  clients = population.Population(population.Always(), speed)
  options = {'cost_model': COSTS, 'population': clients}
  train(tmp_path, 1, RULES['power_of_choice'], **options)
  row = fakes.rows(tmp_path)[1]
  assert (row['clients'], row['candidates']) == ('5', '8')
  assert float(row['megabytes_down']) == 8.0  # The chosen ones have the model already.
  assert float(row['megabytes_up']) == pytest.approx(5 + 8 * 4e-6)
  # 1 s to receive, a third of 3 s for each of at most 3 batches; then 3 steps of 3 s, and 2 s up.
  sizes = [2 + i % 5 for i in range(20)]
  _, cohort = cohort_of(RULES['power_of_choice'], weights=[np.zeros(3)], **options)
  candidates = cohort.choice.candidates
  assert int(row['candidate_examples']) == sum(sizes[i] for i in candidates)
  batches = [-(-sizes[i] // 2) for i in candidates]
  steps = max(-(-sizes[i] // 2) for i in cohort.positions)
  expected = 1 + max(batches) + 3 * steps + 2
  assert float(row['virtual_seconds']) == pytest.approx(expected)


def test_weights_of_a_choice_become_factors_of_updates():
  choice = population.Choice(np.array([4, 2, 9]), np.array([0.5, 0.25, 1.5]))
  sizes = np.ones(10, np.int64)
  factors = cohorts._factors(choice, np.array([9, 4]), sizes)  # One client did not finish.
  assert factors.tolist() == [4.5, 1.5]
  assert factors.dtype == np.float32
  sizes[2] = 0  # The mean of the process leaves this client out, so that it is one of two.
  assert cohorts._factors(choice, choice.positions, sizes)[[0, 2]].tolist() == [1.0, 3.0]
  assert cohorts._factors(population.Choice(np.array([1])), np.array([1]), sizes) is None
  _, cohort = cohort_of(population.BySize('uniform'))
  given = [float(data['cohort_weight']) for (data,) in cohort.data]
  assert given == cohort.weights
  total = sum(fakes.Clients().num_examples(name) for name in fakes.Clients.client_ids)
  for client_id, weight in zip(cohort.client_ids, cohort.weights):
    # q / (m p) for each of its draws, times the number of clients.
    of_a_draw = total / (20 * 5 * fakes.Clients().num_examples(client_id))
    draws = weight / (of_a_draw * len(cohort.weights))
    assert draws == pytest.approx(round(draws))


class Remembers:
  """Draws uniformly, and keeps something in its memory."""

  needs = ('memory',)

  def __init__(self, value):
    self._value = value

  def __call__(self, situation):
    self.seen = dict(situation.memory)
    situation.memory['value'] = self._value
    return situation.available[: situation.size]


def test_a_rule_finds_its_memory_as_a_resumed_run_would():
  rule = Remembers((np.int64(3), np.float32(0.5), {'c': None}))
  fakes.train(None, 2, cohort=rule)
  assert rule.seen == {'value': [3, 0.5, {'c': None}]}
  assert type(rule.seen['value'][0]) is int
  for value, words in (
    ({3: 1.0}, "memory of Remembers has the key 3, .* give texts, such as '3'"),
    (np.zeros(2), 'memory of Remembers has a value of the type ndarray, .*array.tolist'),
  ):
    with pytest.raises(ValueError, match=words):
      fakes.train(None, 2, cohort=Remembers(value))


@pytest.mark.parametrize('rule', [population.PowerOfChoice(), population.Oort()])
def test_losses_that_are_not_given_are_asked_for(rule):
  with pytest.raises(ValueError, match='needs losses of clients: give client_losses=training'):
    fakes.train(None, 3, cohort=rule)


def test_norms_that_are_not_measured_are_asked_for():
  with pytest.raises(ValueError, match=r'needs norms of updates, .*ClientNormsFactory\(\)'):
    fakes.train(None, 3, cohort=without_weights(population.Importance()))


def test_what_a_rule_does_not_go_with_is_refused():
  def refused(words, kind=ValueError, **options):
    with pytest.raises(kind, match=words):
      training.TrainingConfig(3, 2, cost_model=COSTS, **options)

  refused('cohort is 3; give a function', TypeError, cohort=3)
  everybody = population.Population()
  refused(
    'cohort is Cyclic, but asynchronous training draws',
    cohort=population.Cyclic(),
    population=everybody,
    asynchrony=training.Buffered(5),
  )
  account = training.PrivacyCallback(None, 1e-3, 1)
  with pytest.raises(ValueError, match=r'PrivacyCallback reports .* of a rule are not'):
    fakes.train(None, 3, cohort=population.Cyclic(), callbacks=[account])


def test_config_json_names_the_rule_and_its_options():
  config = training.TrainingConfig(3, 2, cohort=population.PowerOfChoice(candidates=7))
  assert config.record().settings['cohort'] == {'kind': 'PowerOfChoice', 'candidates': 7}
  assert training.TrainingConfig(3, 2).record().settings['cohort'] is None


def test_a_run_is_resumed_with_the_same_rule_only(tmp_path):
  fakes.train(tmp_path, 2, cohort=population.Cyclic())
  with pytest.raises(runs.ResumeError, match=r'has other settings: cohort .*Cyclic.*Shuffled'):
    fakes.train(tmp_path, 4, cohort=population.Shuffled())
