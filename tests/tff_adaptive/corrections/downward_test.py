"""Messages to clients: the shadow's formula, identities, sizes, and what is refused."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import compressed
from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, asynchrony, corrections, costs, population, training
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.corrections import downward

SEED = tf.constant([1, 2])
SHAPES = ((3, 4), (5,))


def weights(seed):
  rng = np.random.default_rng(seed)
  return tuple(tf.constant(rng.normal(size=shape), tf.float32) for shape in SHAPES)


def messages_of(correction, num_rounds):
  """What clients have in some rounds, each with another model."""
  state = correction.server_state(weights(0))
  received = []
  for t in range(num_rounds):
    sent = downward.send(correction, state, weights(t), SEED)
    state = sent.server_state
    received.append(oracle.pack(sent.theta))
  return received


def test_the_shadow_follows_its_formula():
  received = messages_of(corrections.TopKDown(share=0.2), 6)
  known = compressed.Broadcast(lambda v: compressed.top_k(v, 0.2))
  for t in range(6):
    wanted = known.send(oracle.pack(weights(t)))
    np.testing.assert_allclose(received[t], wanted, rtol=1e-5, atol=1e-6)
  # Of 17 numbers three change in a round.
  assert np.count_nonzero(received[1] - received[0]) == 3


def test_what_was_left_out_arrives_when_the_model_stands_still():
  """Top-k of n/k rounds sends all, whatever was left out before."""
  correction = corrections.TopKDown(share=0.2)
  state = correction.server_state(weights(0))
  for _ in range(6):
    sent = downward.send(correction, state, weights(1), SEED)
    state = sent.server_state
  np.testing.assert_allclose(oracle.pack(sent.theta), oracle.pack(weights(1)), atol=1e-6)


def test_a_model_that_is_set_in_a_program_is_what_clients_begin_with(graph):
  """Pretrained weights, say: the server's copy of what clients have is then this model."""
  process = small_problem.process(
    'fed_avg', build_model=small_problem.linear_model, more_parts=(corrections.TopKDown(share=0.1),)
  )

  def set_model():
    state = process.initialize()
    before = state.global_model_weights
    pretrained = type(before)([w + 1 for w in before.trainable], before.non_trainable)
    return pretrained, process.set_model_weights(state, pretrained)

  pretrained, state = engines.run(graph, set_model)
  for known, weight in zip(state.correction['shadow'][0], pretrained.trainable, strict=True):
    np.testing.assert_array_equal(known, weight)
  chain = corrections.chain(corrections.Scaffold(9), corrections.TopKDown(share=0.1))
  first = chain.server_state(weights(0))
  sent = downward.send(chain, downward.with_model(chain, first, weights(1)), weights(1), SEED)
  np.testing.assert_array_equal(oracle.pack(sent.theta), oracle.pack(weights(1)))
  tf.nest.map_structure(np.testing.assert_array_equal, sent.broadcast, chain.broadcast(first))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
  'part',
  [
    corrections.RandKDown(share=0.3),
    corrections.SignDown(),
    corrections.QsgdDown(levels=3),
    corrections.QuantizeDown(bits=4),
    corrections.TernaryDown(),
    corrections.Float16Down(),
    corrections.BFloat16Down(),
    corrections.chain(
      corrections.TopKDown(share=0.3), corrections.QuantizeDown(bits=4, random=False)
    ),
  ],
  ids=lambda part: part.name,
)
def test_every_compressor_comes_nearer_to_a_model_that_stands_still(part):
  """They are contractions with feedback, so the distance falls to zero in the mean."""
  state = part.server_state(weights(0))
  goal = oracle.pack(weights(1))
  distances = [np.linalg.norm(goal - oracle.pack(weights(0)))]
  for t in range(60):
    sent = downward.send(part, state, weights(1), tf.constant([t, 5]))
    state = sent.server_state
    distances.append(np.linalg.norm(goal - oracle.pack(sent.theta)))
  assert distances[-1] < 0.3 * distances[0]


def train(graph, *parts, num_rounds=4):
  """The run of a chain on the small problem."""
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    corrections.chain(*parts),
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4, shuffle=False)),
  )
  run = engines.run(graph, small_problem.Run, process, small_problem.clients())
  return engines.run(graph, run.rounds, small_problem.cohorts(num_rounds))


def top(share):
  return lambda vector: compressed.top_k(vector, share)


HOW = dict(eta_l=lambda t: 0.2, batch_size=4)


def follow(kind, **channels):
  run = kind(
    small_problem.theta_0(),
    small_problem.clients(),
    server=oracle.Sgd(1.0),
    **HOW,
    **channels,
  )
  for cohort in small_problem.cohorts(4):
    run.round(cohort)
  return run


def test_rounds_are_numpys(graph):
  trained = train(graph, corrections.TopKDown(share=0.2))
  channel = compressed.Channel(compressed.unchanged)
  wanted = follow(compressed.FedAvg, channel=channel, broadcast=compressed.Broadcast(top(0.2)))
  assert not trained.is_stateful
  np.testing.assert_allclose(trained.theta, wanted.theta, rtol=2e-5, atol=2e-6)
  dense = follow(compressed.FedAvg, channel=channel)
  assert np.abs(dense.theta - wanted.theta).max() > 1e-2


@pytest.mark.exhaustive
def test_scaffolds_control_variate_has_a_shadow_too_beside_compression_upwards(graph):
  trained = train(
    graph,
    corrections.Scaffold(small_problem.NUM_CLIENTS),
    corrections.TopK(share=0.3, feedback='ef21'),
    corrections.TopKDown(share=0.2),
  )
  wanted = follow(
    compressed.Scaffold,
    channel=compressed.Channel(top(0.3), 'ef21'),
    second_channel=compressed.Channel(top(0.3), 'ef21'),
    broadcast=compressed.Broadcast(top(0.2)),
    second_broadcast=compressed.Broadcast(top(0.2)),
  )
  np.testing.assert_allclose(trained.theta, wanted.theta, rtol=2e-5, atol=3e-6)
  np.testing.assert_allclose(trained.h, wanted.h, rtol=2e-5, atol=3e-6)
  np.testing.assert_allclose(trained.theta_bar, wanted.theta_bar, rtol=2e-5, atol=3e-6)


@pytest.mark.exhaustive
def test_all_numbers_downwards_change_no_more_than_rounding(graph):
  parts = (corrections.Scaffold(small_problem.NUM_CLIENTS),)
  plain = train(graph, *parts)
  trained = train(graph, *parts, corrections.TopKDown(share=1.0))
  np.testing.assert_allclose(trained.theta, plain.theta, rtol=1e-5, atol=1e-6)


def test_weights_that_stay_at_the_client_are_in_no_message():
  chain = corrections.chain(corrections.FedPer(), corrections.TopKDown(share=0.5))
  model = small_problem.model()
  sizes = [weight.size for weight in model.initial_weights[0]]
  hidden = sum(sizes[:2])
  counts = algorithms.counts(chain, model)
  of_changes = 32 * hidden // 2 + hidden  # The values, and a bit for each place.
  assert counts.down == of_changes / (32 * sum(sizes))
  assert counts.down_whole == hidden / sum(sizes)


def test_a_client_that_was_away_receives_the_changes_of_these_rounds_or_all():
  """Both the model and SCAFFOLD's control variate."""
  n = small_problem.theta_0().size
  chain = corrections.chain(corrections.Scaffold(9), corrections.TopKDown(share=0.1))
  counts = algorithms.counts(chain, small_problem.model())
  k = round(0.1 * n)
  message = -(-(32 * k + min(n, k * (n - 1).bit_length())) // 8)
  assert counts.down == 2 * message / (4 * n)
  assert (counts.down_whole, counts.up) == (2, 2)
  for rounds_between, wanted in ((1, 2 * message), (3, 6 * message), (100, 8 * n)):
    cost_model = costs.CostModel(counts, n, 4, rounds_between=rounds_between)
    assert cost_model.bytes_of_client == (wanted, 8 * n)
    assert cost_model.round([4, 4])['megabytes_down'] == 2 * wanted / 1e6
  with pytest.raises(ValueError, match=r'rounds_between must be .* found 0.5: give clients'):
    costs.CostModel(counts, n, 4, rounds_between=0.5)


@pytest.mark.parametrize(('name', 'models'), [('mime', 1), ('fed_lalr', 3)])
def test_what_is_no_change_of_the_model_is_received_once_whatever_the_gap(name, models):
  """Mime's exchanged gradient; the averaged AMSGrad states of FedLALR."""
  n = small_problem.theta_0().size
  chain = f'{name}+top_k_down'
  plain = algorithms.counts(name, small_problem.model())
  counts = algorithms.counts(chain, small_problem.model(), values={'top_k_down.share': 0.05})
  one, three = (
    costs.CostModel(counts, n, 4, rounds_between=gap).bytes_of_client[0] for gap in (1, 3)
  )
  changes = (three - one) // 2
  assert counts.down_whole == plain.down
  # The rest, whole: of Mime the cohort's gradient, of AMSGrad m, v, v-max and the number of steps.
  steps = 8 * (name == 'fed_lalr')
  assert abs(one - changes - 4 * n * models) <= steps
  assert changes < n


def test_a_rule_that_needs_losses_of_candidates_is_refused():
  counts = algorithms.counts('fed_avg+top_k_down', small_problem.model())
  cost_model = costs.CostModel(counts, 10, 4)
  settings = {'rounds': 1, 'clients_per_round': 2, 'cohort': population.PowerOfChoice()}
  training.TrainingConfig(**settings)
  message = '^cohort is PowerOfChoice, whose candidates evaluate .* compressed changes'
  with pytest.raises(ValueError, match=message):
    training.TrainingConfig(**settings, cost_model=cost_model)


def test_the_size_in_the_other_direction_is_untouched():
  plain = algorithms.counts('fed_avg', small_problem.model())
  down = algorithms.counts('fed_avg+quantize_down', small_problem.model())
  assert (down.up, down.uncounted) == (plain.up, ())
  assert down.down < 0.5 < plain.down == down.down_whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(corrections.Downward, corrections.Quantize):
  """A user's."""

  name = 'own_down'


def test_the_rules_of_a_chain_hold_in_each_direction():
  chain = corrections.chain(
    corrections.TopK(), corrections.TopKDown(), corrections.Sign(), Own(bits=3)
  )
  assert chain.name == 'top_k+top_k_down+sign+own_down'
  for parts, words in (
    ((corrections.SignDown(), corrections.TopKDown()), 'top_k_down cannot follow sign_down'),
    ((corrections.TopKDown(), corrections.RandKDown()), 'rand_k_down cannot follow top_k_down'),
    (
      (corrections.ScaffoldM(9), corrections.TopKDown()),
      '^scaffold_m does not go with top_k_down: .* take scaffold',
    ),
  ):
    with pytest.raises(ValueError, match=words):
      corrections.chain(*parts)
  with pytest.raises(ValueError, match="feedback must be ef21, found 'ef14'"):
    corrections.TopKDown(feedback='ef14')


def test_asynchronous_training_is_refused():
  with pytest.raises(ValueError, match='top_k_down sends changes from round to round'):
    algorithms.build_process(
      'fed_avg+top_k_down',
      small_problem.model(),
      client_learning_rate=0.1,
      training=ClientTraining(batching=Batching(4)),
      asynchrony=asynchrony.Buffered(1),
    )
