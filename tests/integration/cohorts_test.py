"""Rules for cohorts with real processes: unbiased on least squares, the same by reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import engines, situations
from tff_adaptive import ClientTraining, algorithms, population, training
from tff_adaptive.aggregation import ClientNormsFactory
from tff_adaptive.client import Batching, client_arrays
from tff_adaptive.population import choosing
from tff_adaptive.training import cohorts
from tff_adaptive_tasks import least_squares

SIZES = (2, 7, 4, 3)
TASK = least_squares.load(num_clients=4, rows=7, columns=3)
RATE = 0.2


class Clients:
  """The clients of the task, with unequal numbers of examples."""

  client_ids = tuple(TASK.train.client_ids)

  def num_examples(self, client_id):
    return SIZES[self.client_ids.index(client_id)]

  def load(self, client_id):
    arrays = TASK.train.load(client_id)
    return {name: array[: self.num_examples(client_id)] for name, array in arrays.items()}


def process(weighting, cohort_weights, **options):
  batching = Batching(2, epochs=2)
  return algorithms.build_fed_avg(
    TASK.build_model(0),
    client_learning_rate=RATE,
    training=ClientTraining(batching=batching, cohort_weights=cohort_weights),
    client_weighting=weighting,
    **options,
  )


def step(graph, built, positions, weights=None):
  """The change of the weights in a first round with the clients at some positions."""
  entries = [{} for _ in positions]
  if weights is not None:
    entries = [{'cohort_weight': np.float32(weight)} for weight in weights]
  data = []
  for position, more in zip(positions, entries):
    arrays = Clients().load(Clients.client_ids[position])
    data.append(client_arrays(arrays['x'], arrays['y'], position, **more))

  def run():
    state = built.initialize()
    output = built.next(state, data)
    return output.state.global_model_weights.trainable[0] - state.global_model_weights.trainable[0]

  return np.asarray(engines.run(graph, run), np.float64)


def situation():
  observed = {'norms': [0.3, 2.0, np.nan, 0.7], 'train_losses': [0.3, 2.0, np.nan, 0.7]}
  options = {'num_examples': SIZES, 'observed': observed}
  return situations.situation(4, 2, needs=('norms', 'train_losses'), **options)


@pytest.mark.parametrize(
  'rule',
  [
    population.Replacement('examples'),
    population.BySize('uniform'),
    population.Importance('examples', by='norms'),
    population.Importance('uniform', by='losses'),
  ],
  ids=repr,
)
@pytest.mark.sample(1)
def test_the_mean_step_over_all_cohorts_is_the_step_with_all_clients(graph, rule):
  """All 16 draws of 2 of 4 clients, each a round of FedAvg, with their probabilities."""
  at = situation()
  p = rule.probabilities(at)
  weighted = process('uniform', True)
  mean = np.zeros(3)
  for drawn in itertools.product(range(4), repeat=2):
    choice = choosing.choose(_fixed(rule.of_draws(at, np.array(drawn))), at)
    factors = cohorts._factors(choice, choice.positions, at.num_examples)
    change = step(graph, weighted, choice.positions.tolist(), factors)
    mean += np.prod(p[list(drawn)]) * change
  expected = step(graph, process(rule.objective, False), range(4))
  np.testing.assert_allclose(mean, expected, atol=1e-6)
  uniform = population.Replacement('uniform' if rule.objective == 'examples' else 'examples')
  other = step(graph, process(uniform.objective, False), range(4))
  assert np.abs(expected - other).max() > 1e-3  # The objectives differ here.


def _fixed(choice):
  def rule(at):
    return choice

  rule.is_weighted = True
  return rule


def train(graph, rule, **options):
  config = training.TrainingConfig(4, 2, seed=1, cohort=rule, metric='loss')
  model = TASK.build_model(0)
  if 'norms' in choosing.needs_of(rule):
    aggregator = ClientNormsFactory()
  else:
    aggregator = None
  built = process('uniform', choosing.gives_weights(rule), aggregator=aggregator)

  def run():
    return training.train(
      built,
      Clients(),
      lambda weights: {'loss': float(tf.reduce_sum(weights[0]))},
      config,
      client_losses=training.build_client_losses(model),
      show_progress=False,
      **options,
    )

  return engines.run(graph, run)


@pytest.mark.parametrize(
  'rule',
  [
    population.PowerOfChoice(),
    population.Oort(),
    population.Importance(),
    population.BySize(),
    population.Stratified(strata=2),
  ],
  ids=repr,
)
@pytest.mark.exhaustive
def test_a_run_with_a_rule_gives_the_same_bits_again_and_finite_weights(graph, rule, tmp_path):
  first = train(graph, rule, output_dir=str(tmp_path / 'run'))
  again = train(graph, rule)
  for one, other in zip(
    first.state.global_model_weights.trainable, again.state.global_model_weights.trainable
  ):
    np.testing.assert_array_equal(one, other)
    assert np.isfinite(one).all()


def test_losses_of_clients_are_means_over_their_examples():
  model = TASK.build_model(0)
  weights = model.initial_weights[0]
  examples = [Clients().load(name) for name in Clients.client_ids]
  empty = {name: array[:0] for name, array in examples[0].items()}
  computed = training.build_client_losses(model, batch_size=3)(weights, [*examples, empty])
  for arrays, row in zip(examples, computed):
    losses = np.square(arrays['x'] @ weights[0] - arrays['y']) / 2
    np.testing.assert_allclose(row, [losses.mean(), np.square(losses).mean()], rtol=1e-5)
  assert np.isnan(computed[-1]).all()


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match='cohort_weights need clients that are given as whole'):
    ClientTraining(cohort_weights=True)
  with pytest.raises(ValueError, match='cohort_weights=True'):
    training.train(
      process('uniform', False),
      Clients(),
      None,
      training.TrainingConfig(2, 2, cohort=population.BySize()),
    )
  with pytest.raises(TypeError, match='model must be of the class Model'):
    training.build_client_losses(object())
