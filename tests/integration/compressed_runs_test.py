"""Compressed training: NumPy's models, identities, groups, resumption to the bit, true bytes."""

import collections
import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf

import oracle
import tff_adaptive
from oracle import compressed
from scripts import train
from scripts.cli import resolve
from tests.helpers import engines, fakes, small_problem
from tff_adaptive import (
  algorithms,
  asynchrony,
  corrections,
  optimizers,
  population,
  registry,
  training,
)
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.training import cohorts

N = small_problem.NUM_CLIENTS
SHARE = 0.2
HOW = dict(eta_l=lambda t: 0.2, batch_size=4, server=oracle.Sgd(1.0))


@pytest.fixture(scope='module')
def run(graph):
  """A function of the parts -> the run of their chain after some rounds."""

  def make(*parts, num_rounds=4, server=None, **how):
    process = algorithms.build_drift_corrected(
      small_problem.model(),
      corrections.chain(*parts),
      server,
      client_learning_rate=0.2,
      training=ClientTraining(**{'batching': Batching(4, shuffle=False), **how}),
    )
    started = engines.run(graph, small_problem.Run, process, small_problem.clients())
    return engines.run(graph, started.rounds, small_problem.cohorts(num_rounds))

  return make


def follow(oracle_run, num_rounds=4):
  for cohort in small_problem.cohorts(num_rounds):
    oracle_run.round(cohort)
  return oracle_run.theta


def top(vector):
  return compressed.top_k(vector, SHARE)


def channel(feedback, decay=1.0):
  return compressed.Channel(top, feedback, decay)


def broadcast():
  return compressed.Broadcast(top)


@pytest.mark.parametrize(
  ('feedback', 'decay'), [('none', 1.0), ('ef14', 1.0), ('ef14', 0.8), ('ef21', 1.0)]
)
@pytest.mark.sample(1)
def test_top_k_is_numpys(run, feedback, decay):
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  sent = channel(feedback, decay)
  wanted = follow(compressed.FedAvg(theta, clients, channel=sent, **HOW))
  trained = run(corrections.TopK(share=SHARE, feedback=feedback, decay=decay))
  np.testing.assert_allclose(trained.theta, wanted, rtol=2e-5, atol=2e-6)
  assert (feedback != 'none') == trained.is_stateful


@pytest.mark.parametrize('feedback', ['none', 'ef14', 'ef21'])
@pytest.mark.exhaustive
def test_scaffolds_second_message_is_compressed_too(run, feedback):
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  wanted = compressed.Scaffold(
    theta, clients, channel=channel(feedback), second_channel=channel(feedback), **HOW
  )
  follow(wanted)
  trained = run(corrections.Scaffold(N), corrections.TopK(share=SHARE, feedback=feedback))
  np.testing.assert_allclose(trained.theta, wanted.theta, rtol=2e-5, atol=3e-6)
  np.testing.assert_allclose(trained.h, wanted.h, rtol=2e-5, atol=3e-6)


@dataclasses.dataclass(frozen=True)
class Case:
  """A correction, and NumPy's class of it with its arguments."""

  part: corrections.Correction
  oracle_class: type
  arguments: dict
  has_second_message: bool = False


CORRECTED = {
  'fed_dyn': Case(corrections.FedDyn(0.3, N), compressed.FedDyn, {'mu': 0.3}),
  'ada_best': Case(
    corrections.AdaBest(0.3, 0.8),
    compressed.AdaBest,
    {'mu': 0.3, 'beta': 0.8, 'by_series': True},
  ),
  'fed_cm': Case(corrections.FedCM(0.4), compressed.FedCM, {'alpha': 0.4}, True),
  'sam': Case(corrections.Sam(0.1), compressed.FedAvg, {'sam_rho': 0.1}),
}


@pytest.mark.parametrize('name', CORRECTED)
@pytest.mark.sample(1)
def test_corrections_under_an_adaptive_server_are_numpys(run, name):
  """In both directions, with feedback and FedYogi's server."""
  case = CORRECTED[name]
  channels = {'channel': channel('ef14'), 'broadcast': broadcast()}
  if case.has_second_message:
    channels |= {'second_channel': channel('ef14'), 'second_broadcast': broadcast()}
  yogi = oracle.Adaptive('yogi', 0.1, 0.9, 0.99, 1e-2)
  wanted = case.oracle_class(
    small_problem.theta_0(),
    small_problem.clients(),
    **{**HOW, 'server': yogi},
    **channels,
    **case.arguments,
  )
  follow(wanted)
  trained = run(
    case.part,
    corrections.TopK(share=SHARE, feedback='ef14'),
    corrections.TopKDown(share=SHARE),
    server=optimizers.build_yogi(0.1, beta2=0.99, tau=1e-2),
  )
  np.testing.assert_allclose(trained.theta, wanted.theta, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize(
  'parts', [(corrections.Scaffold(N),), (corrections.FedDyn(0.3, N),), (corrections.FedNova(),), ()]
)
@pytest.mark.exhaustive
def test_top_k_of_all_numbers_changes_no_bit(run, parts):
  plain = run(*parts)
  for feedback in ('none', 'ef14'):
    trained = run(*parts, corrections.TopK(share=1.0, feedback=feedback))
    np.testing.assert_array_equal(trained.theta, plain.theta)


@pytest.mark.parametrize('feedback', ['none', 'ef14'])
@pytest.mark.exhaustive
def test_fed_exps_norms_are_those_of_what_the_server_decodes(run, feedback):
  """With those of whole updates the step would be 1/share times as large, and diverge."""
  theta, clients = small_problem.theta_0(), small_problem.clients()
  sent = channel(feedback)
  wanted = compressed.FedExP(theta, clients, channel=sent, eps=1e-3, **HOW)
  follow(wanted)
  trained = run(corrections.FedExP(1e-3), corrections.TopK(share=SHARE, feedback=feedback))
  assert max(wanted.factors) > 1
  np.testing.assert_allclose(trained.theta, wanted.theta, rtol=2e-5, atol=3e-6)


@pytest.mark.exhaustive
def test_fed_inits_clients_know_where_they_ended_whatever_they_sent(run):
  theta, clients = small_problem.theta_0(), small_problem.clients()
  wanted = follow(
    compressed.FedInit(theta, clients, channel=channel('ef14'), relaxation=0.4, **HOW)
  )
  trained = run(corrections.FedInit(0.4), corrections.TopK(share=SHARE, feedback='ef14'))
  np.testing.assert_allclose(trained.theta, wanted, rtol=2e-5, atol=3e-6)


RANDOM = (corrections.RandK(share=0.5, feedback='ef14'), corrections.Qsgd(levels=3))


@pytest.mark.parametrize('feedback', ['none', 'ef14'])
@pytest.mark.exhaustive
def test_weights_that_stay_at_the_client_are_in_no_message(run, feedback):
  """Where top-k sends all that FedPer sends, no bit changes. Of the hidden layer half counts."""
  of_all = corrections.TopK(share=1.0, feedback=feedback)
  np.testing.assert_array_equal(
    run(corrections.FedPer(), of_all).theta, run(corrections.FedPer()).theta
  )
  model = small_problem.model()
  sizes = [weight.size for weight in model.initial_weights[0]]
  half = corrections.chain(corrections.FedPer(), corrections.TopK(share=0.5, feedback=feedback))
  hidden = sum(sizes[:2])
  num_bits = 32 * hidden // 2 + hidden  # The values, and a bit for each place.
  assert algorithms.counts(half, model).up == num_bits / (32 * sum(sizes))


@pytest.mark.exhaustive
def test_draws_follow_from_seed_round_and_client(graph, run):
  """A client sends the same whoever else takes part, and other numbers in another round."""
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    corrections.chain(corrections.RandK(share=0.3)),
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4, shuffle=False), seed=5),
    client_weighting='uniform',
  )
  clients = small_problem.clients()

  def sent(cohort):
    """The sum of what the cohort's clients send in the first round."""
    started = engines.run(graph, small_problem.Run, process, clients)
    after = engines.run(graph, started.round, cohort)
    return (small_problem.theta_0() - after.theta) * len(cohort)

  one = sent([1])
  two = sent([4])
  assert set(np.flatnonzero(np.abs(one) > 1e-6)) != set(np.flatnonzero(np.abs(two) > 1e-6))
  np.testing.assert_allclose(sent([1, 4]), one + two, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(run(*RANDOM).theta, run(*RANDOM).theta)
  assert np.abs(run(*RANDOM).theta - run(*RANDOM, seed=1).theta).max() > 1e-3


@pytest.mark.exhaustive
def test_clients_without_a_number_draw_from_their_updates(graph):
  """Those given as datasets of batches, which TFF's processes take."""
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    corrections.RandK(share=0.3),
    client_learning_rate=0.2,
    client_weighting='uniform',
  )
  batches = []
  for x, y in small_problem.clients()[:2]:
    examples = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y))
    batches.append(examples.batch(4))

  def moved(clients):
    state = engines.run(graph, process.initialize)
    output = engines.run(graph, process.next, state, clients)
    return small_problem.theta_0() - oracle.pack(output.state.global_model_weights.trainable)

  one = moved(batches[:1])
  two = moved(batches[1:])
  assert set(np.flatnonzero(np.abs(one) > 1e-6)) != set(np.flatnonzero(np.abs(two) > 1e-6))
  np.testing.assert_array_equal(one, moved(batches[:1]))


def test_no_part_of_the_registry_hides_what_it_sends():
  """A part that changes updates says how many bits they have, or that all numbers are sent."""
  for part in registry.PARTS.values():
    if part.overrides('update'):
      assert part.sends_whole or part.overrides('message_bits'), part.name


FLAGS = ('--task=digits', '--clients_per_round=3', '--seed=1', '--algorithm=scaffold+rand_k+qsgd')
OPTIONS = ('--algorithm_option=share=0.1', '--algorithm_option=rand_k.feedback=ef21')


DOWN = (
  '--task=digits',
  '--clients_per_round=3',
  '--seed=1',
  '--algorithm=scaffold+rand_k_down+qsgd_down',
)


def weights(folder, *flags, of_run=(*FLAGS, *OPTIONS)):
  """The weights after a run of train.py."""
  with fakes.no_figures():
    arguments = ['train.py', *of_run, *flags, f'--output_dir={folder}']
    assert train.main(arguments) == 0
  return tff_adaptive.load_run(str(folder)).weights


@pytest.mark.exhaustive
@pytest.mark.parametrize('of_run', [(*FLAGS, *OPTIONS), DOWN], ids=['up', 'down'])
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(tmp_path, of_run):
  whole = weights(tmp_path / 'whole', '--rounds=4', of_run=of_run)
  weights(tmp_path / 'parts', '--rounds=2', of_run=of_run)
  resumed = weights(tmp_path / 'parts', '--rounds=4', of_run=of_run)
  assert all(np.array_equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_columns_totals_and_the_clock_have_the_bytes_of_the_messages(tmp_path):
  weights(tmp_path / 'run', '--rounds=2')
  loaded = tff_adaptive.load_run(str(tmp_path / 'run'))
  whole = sum(w.size for w in loaded.weights)
  k = round(0.1 * whole)
  message = -(-(64 + 32 + 5 * k) // 8)  # The seed, the norm, and 31 levels in five bits.
  row = loaded.rows[-1]
  assert row['megabytes_up'] == pytest.approx(3 * 2 * message / 1e6, rel=1e-9)
  assert row['megabytes_down'] == pytest.approx(3 * 2 * 4 * whole / 1e6, rel=1e-9)
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert summary['totals']['megabytes_up'] == pytest.approx(2 * row['megabytes_up'])
  assert 'megabytes_uncounted' not in summary


USERS = """
import dataclasses
import tensorflow as tf
from tff_adaptive import corrections

@dataclasses.dataclass(frozen=True)
class Halved(corrections.Compressor):
  name = 'halved'
  def compress(self, values, seed):
    return values / 2

@dataclasses.dataclass(frozen=True)
class Counted(Halved):
  name = 'counted'
  def message_bits(self, size):
    return 31 * size

@dataclasses.dataclass(frozen=True, kw_only=True)
class HalvedDown(corrections.Downward, Halved):
  name = 'halved_down'

@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedDown(corrections.Downward, Counted):
  name = 'counted_down'

@dataclasses.dataclass(frozen=True)
class Own(corrections.Correction):
  name = 'own'
  def update(self, client, g_i, steps):
    return tuple(g / 2 for g in g_i)

@dataclasses.dataclass(frozen=True)
class Whole(Own):
  name = 'whole'
  sends_whole = True
"""


def test_a_users_compressor_counts_by_its_message_bits_or_the_run_says_that_it_has_none(
  tmp_path, capsys
):
  path = tmp_path / 'mine.py'
  path.write_text(USERS)
  for name, factor in (('Halved', 1), ('Counted', 31 / 32), ('Own', 1), ('Whole', 1)):
    counts = algorithms.counts(f'{path}:{name}', small_problem.model())
    number = small_problem.theta_0().size
    assert counts.up == pytest.approx(factor, abs=1 / (4 * number))
    says_how_much = name in ('Counted', 'Whole')
    assert counts.uncounted == (() if says_how_much else (name.lower(),))
  for name, factor, uncounted in (
    ('HalvedDown', 1, ('halved_down',)),
    ('CountedDown', 31 / 32, ()),
  ):
    counts = algorithms.counts(f'fed_avg+{path}:{name}', small_problem.model())
    assert counts.down == pytest.approx(factor, abs=1 / (4 * number))
    assert (counts.up, counts.uncounted) == (1, uncounted)
  with fakes.no_figures():
    flags = [*FLAGS[:3], f'--algorithm={path}:Halved', '--rounds=1']
    assert train.main(['train.py', *flags, f'--output_dir={tmp_path / "run"}']) == 0
  assert 'halved may send less than the megabytes of the run count' in capsys.readouterr().err
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert summary['megabytes_uncounted'] == ['halved']


def test_published_bytes_do_not_hide_what_a_further_part_saves():
  """AdaBest's paper counts the model in both directions; FedPer's last layer stays."""
  model = small_problem.model()
  alone = algorithms.counts('ada_best', model)
  assert (alone.down, alone.up) == (1, 1)
  sizes = [weight.size for weight in model.initial_weights[0]]
  hidden = sum(sizes[:2]) / sum(sizes)
  counts = algorithms.counts('ada_best', model, more_parts=[corrections.FedPer()])
  # Besides, numbers: n-bar down, n_i up.
  assert (counts.down, counts.up) == pytest.approx((hidden, hidden), abs=1.5 / sum(sizes))


@pytest.mark.parametrize('aggregator', ['secure', 'compression'])
def test_what_saves_nothing_is_refused(aggregator):
  with pytest.raises(ValueError, match=f'{aggregator} does not go with top_k'):
    resolve.resolve(algorithm='fed_avg+top_k', aggregator=aggregator)
  resolve.resolve(algorithm='fed_avg+top_k', aggregator='clipping')


def test_clipping_limits_what_the_server_decodes(graph):
  """Whatever feedback adds: an update counts with at most the norm."""
  from tff_adaptive import aggregation

  cohort = aggregation.Cohort(3, small_problem.model().initial_weights[0])
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    corrections.TopK(share=0.1, feedback='ef14'),
    client_learning_rate=5.0,
    training=ClientTraining(batching=Batching(4)),
    aggregator=aggregation.build_aggregator('clipping', {'norm': 0.01}, cohort),
  )
  state = engines.run(graph, small_problem.Run, process, small_problem.clients())
  before = state.theta
  for numbers in small_problem.cohorts(3):
    after = engines.run(graph, state.round, numbers).theta
    assert np.linalg.norm(after - before) <= 0.01 * (1 + 1e-4)
    before = after


@pytest.mark.parametrize(
  ('name', 'asynchronous', 'is_down', 'is_up'),
  [
    ('fed_avg', None, False, False),
    ('fed_avg+top_k', None, False, True),
    ('fed_avg+top_k', asynchrony.Buffered(1), False, True),
    ('fed_avg+top_k_down', None, True, False),
  ],
)
def test_the_clock_of_a_population_has_the_bytes_of_messages(name, asynchronous, is_down, is_up):
  """With a byte a second in both directions."""
  number = small_problem.theta_0().size
  k = max(1, round(0.05 * number))
  message = -(-(k * (number - 1).bit_length() + 32 * k) // 8)
  counts = algorithms.counts(name, small_problem.model())
  config = training.TrainingConfig(
    rounds=1,
    clients_per_round=1,
    population=population.Population(
      speed=population.Speed(seconds_per_step=1e-9, downlink=1e-6, uplink=1e-6)
    ),
    cost_model=tff_adaptive.costs.CostModel(counts, number, 4),
    asynchrony=asynchronous,
  )
  clients = types.SimpleNamespace(client_ids=['a', 'b'], num_examples=lambda _: 4)
  simulation = cohorts.simulate(config, clients)
  whole = 4 * number
  wanted = (message if is_down else whole) + (message if is_up else whole)
  np.testing.assert_allclose(simulation.seconds, [wanted, wanted], rtol=1e-6)


def test_entries_of_compressors_are_no_algorithms():
  assert 'top_k' in registry.PARTS
  assert 'top_k' not in registry.ALGORITHMS
