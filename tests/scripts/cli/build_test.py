"""Every setting reaches the builder it belongs to."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from scripts.cli import build as build_lib, resolve, stored_model
from scripts.cli.groups import evaluation, output, runtime
from tests.helpers import settings
from tff_adaptive import asynchrony, corrections, population
from tff_adaptive.client import batching


class _Task:
  train = types.SimpleNamespace(client_ids='abc', num_examples={'a': 2, 'b': 4, 'c': 9}.get)
  unit_starts = 'unit_starts'
  client_weight = 'client_weight'


@pytest.fixture
def built(monkeypatch):
  """Builds with recorders in place of the builders: arguments -> what they were given."""

  def build(*arguments):
    seen = {}

    def record_server(entry, rate, values):
      seen['server'] = (entry.name, rate, dict(values))
      return entry.name

    def record(entry, model, **options):
      seen.update(options, name=entry.name, model=model)
      return 'process'

    monkeypatch.setattr(build_lib.algorithms, 'build_process', record)
    monkeypatch.setattr(build_lib.algorithms, 'build_server_optimizer', record_server)
    monkeypatch.setattr(build_lib.aggregation.Aggregation, 'build', lambda self, *given: given)
    run_settings = settings.of(*arguments)
    assert build_lib.build_process(run_settings, _Task, 'model', 'plan') == 'process'
    assert seen['aggregator'] == (run_settings.training, seen['model'], 'plan')
    return seen

  return build


def test_servers_take_their_own_options(built):
  seen = built('--tau=0.5', '--beta1=0.8', '--beta2=0.7', '--bias_correction', '--initial_v=0.1')
  assert (seen['name'], seen['model'], seen['server_optimizer']) == ('fed_yogi', 'model', 'yogi')
  values = dict(tau=0.5, beta1=0.8, beta2=0.7, bias_correction=True, initial_v=0.1)
  assert seen['server'] == ('yogi', 0.01, values)
  assert built('--algorithm=fed_avgm', '--momentum=0.3')['server'][2] == {'momentum': 0.3}
  adagrad = built('--algorithm=fed_adagrad')['server'][2]
  assert adagrad['beta1'] == 0.0
  assert 'beta2' not in adagrad


def test_what_clients_do_is_passed_on(built):
  flags = '--client_epochs=3 --batch_size=0 --fill_last_batch --weight_decay=0.1'
  flags += ' --synchrony=buffered --concurrency=9 --mixing'
  seen = built(*flags.split(), '--clip_norm=5', '--seed=9', '--xla', '--client_weighting=uniform')
  training = seen['training']
  assert training.batching == batching.Batching(None, 3, fill_last=True, unit_starts='unit_starts')
  assert seen['more_parts'] == [corrections.Clip(5.0), corrections.WeightDecay(0.1)]
  assert (training.seed, training.xla) == (9, True)
  assert seen['asynchrony'] == asynchrony.Buffered(9, mixing=True)
  assert seen['client_weighting'] == 'uniform'


def test_clients_are_weighted_as_the_task_says_where_nothing_is_said(built):
  for task, weighting in (('digits', 'examples'), ('shakespeare', 'client_weight')):
    assert built(f'--task={task}')['client_weighting'] == weighting


def test_schedules_are_passed_on(built):
  client = '--client_learning_rate=0.4 --client_schedule=exp_decay'
  client += ' --client_schedule_option=factor=0.5 --client_schedule_option=every=10'
  server = '--server_learning_rate=0.2 --server_schedule_option=warmup_rounds=4'
  seen = built(*client.split(), *server.split())
  assert [seen['client_learning_rate'](t) for t in (0, 9, 10)] == [0.4, 0.4, 0.2]
  _, schedule, _ = seen['server']
  assert [schedule(t) for t in (0, 7)] == pytest.approx([0.05, 0.2])


def test_a_schedule_needs_no_options_and_a_model_may_compute_in_16_bits(built, monkeypatch):
  _, schedule, _ = built('--server_schedule=inv_sqrt', '--server_learning_rate=0.2')['server']
  assert schedule(3) == pytest.approx(0.1)
  monkeypatch.setattr(build_lib.mixed_precision, 'convert', lambda *given: given)
  assert built('--mixed_precision=bfloat16')['model'] == ('model', 'bfloat16')


def test_the_client_optimizer_and_local_steps_are_passed_on(built, tmp_path):
  flags = '--client_optimizer=sgdm --client_optimizer_option=momentum=0.5 --sam_rho=0.1'
  flags += ' --client_optimizer_state=keep --local_steps=4 --random_local_steps --with_replacement'
  seen = built(*flags.split())
  training = seen['training']
  state = training.optimizer.initialize(tf.TensorSpec([1]))
  assert (float(state['momentum']), training.optimizer_state) == (0.5, 'keep')
  assert seen['more_parts'] == [corrections.Sam(0.1)]
  batching = training.batching
  assert (batching.local_steps, batching.random_local_steps, batching.with_replacement) == (
    4,
    True,
    True,
  )
  path = tmp_path / 'mine.py'
  path.write_text(
    'from tff_adaptive import optimizers\ndef own(rate, momentum: float = 0.7):\n'
    '  return optimizers.build_nesterov(rate, momentum=momentum)\n'
  )
  training = built(f'--client_optimizer={path}:own')['training']
  assert float(training.optimizer.initialize(tf.TensorSpec([1]))['momentum']) == 0.7
  server = f'--server_optimizer={path}:own --server_optimizer_option=momentum=0.3'
  assert built('--algorithm=fed_avg', *server.split())['server'][2] == {'momentum': 0.3}


def test_corrections_take_any_server_and_their_own_options(built):
  seen = built('--algorithm=ada_best', '--server_optimizer=adam', '--beta_decay=0.9', '--tau=0.1')
  assert (seen['name'], seen['server'][:2]) == ('ada_best', ('adam', 0.01))
  assert seen['server'][2]['tau'] == 0.1
  # With an adaptive server AdaBest forgets sooner by default.
  assert seen['values'] == {'mu': 0.02, 'scale_mu': False, 'beta': 0.2, 'beta_decay': 0.9}
  seen = built('--algorithm=scaffold', '--scaffold_option=1', '--max_examples_per_client=6')
  assert seen['server'] == ('sgd', 1.0, {})
  assert seen['values'] == {'scaffold_option': 1}
  assert seen['clients'] == (3, 4.0)  # Of 2, 4 and 6.
  assert built('--algorithm=scaffold')['clients'] == (3, 5.0)


@pytest.mark.parametrize('dtype, width', [('float32', 4), ('float64', 8)])
def test_a_weight_is_sent_in_the_models_own_width(dtype, width):
  task = build_lib.tasks.load('least_squares', dtype=dtype)
  model = task.build_model(0)
  config = build_lib._training_config(settings.of('--task=least_squares'), task, model)
  assert config.cost_model.bytes_of_client == (width * model.num_parameters,) * 2


@pytest.mark.parametrize(
  'cohort, more, of_model', [(9, 1, 0.5), (6, 1, 0.75), (3, 1, 1), (3, 2, 0.75)]
)
def test_clients_that_are_away_receive_the_changes_of_these_rounds_or_all(
  cohort, more, of_model, capsys
):
  """As float16 the changes of a round have half the model's bytes, and of two rounds all."""
  task = build_lib.tasks.load('least_squares', num_clients=9)
  model = task.build_model(0)
  flags = ['--task=least_squares', '--algorithm=fed_avg+float16_down']
  flags += ['--task_option=num_clients=9', f'--clients_per_round={cohort}', f'--over_select={more}']
  config = build_lib._training_config(settings.of(*flags), task, model)
  assert config.cost_model.rounds_between == 9 / (cohort * more)
  whole = 4 * model.num_parameters
  assert config.cost_model.bytes_of_client == (round(of_model * whole), whole)
  is_said = 'clients receive the whole model' in capsys.readouterr().err
  assert is_said == (of_model == 1)


def test_a_run_is_prepared_as_its_settings_say(monkeypatch, tmp_path, capsys):
  seen = {}
  task = build_lib.tasks.load('least_squares', num_clients=9)
  process = types.SimpleNamespace(initial_client_state={'h': np.zeros(2, np.float32)})
  monkeypatch.setattr(runtime.Runtime, 'build', lambda *given, **more: seen.update(more))
  monkeypatch.setattr(
    build_lib, 'build_process', lambda *given: seen.update(built=given) or process
  )
  monkeypatch.setattr(output.Output, 'build', lambda self, *given: [given])
  monkeypatch.setattr(
    evaluation.ClientEvaluation, 'build', lambda self, *given, **more: (*given, more)
  )
  monkeypatch.setattr(build_lib.tasks, 'load', lambda name, **more: seen.update(more) or task)
  monkeypatch.setattr(build_lib.capacity, 'plan', lambda *given, **more: f'{given[:2]} {more}')
  monkeypatch.setattr(build_lib, 'build_evaluation', lambda model, examples: examples)
  flags = '--task=least_squares --participation=0.3 --rounds=3 --rounds_per_checkpoint=2 --seed=5'
  flags += f' --output_dir={tmp_path}/run --data_dir={tmp_path} --heldout_clients=0.2'
  flags += ' --aggregator=dp_tree --aggregator_option=noise_multiplier=5 --batch_size=7'
  flags += ' --resume_from=previous'
  with pytest.raises(ValueError, match='--early_stop=los: unknown metric'):
    build_lib.prepare(settings.of(*flags.split(), '--early_stop=los'), ['command'])
  assert not (tmp_path / 'run').exists()
  seen.clear()
  capsys.readouterr()
  given = settings.of(*flags.split(), '--engine=native')
  prepared = build_lib.prepare(given, ['command']).arguments
  built_process, _, model, private = seen.pop('built')
  config = prepared['config']
  assert seen == {'is_compiled': False, 'data_dir': str(tmp_path), 'seed': 5}
  assert (built_process.training.clients_per_round, private.delta) == (2, 7**-1.1)
  assert (config.clients_per_round, config.metric, config.population) == (2, 'loss', None)
  assert (config.cost_model.batch_size, config.cost_model.epochs) == (7, 10)
  assert (prepared['settings'].command, prepared['settings'].metric) == (['command'], 'loss')
  stored, _, tracker, _ = prepared['callbacks']
  assert isinstance(stored, stored_model.StoreModel)
  assert tracker == (prepared['run_id'], prepared['settings'].settings)
  _, evaluated, _, of_evaluation = prepared['client_evaluation']
  assert evaluated is model
  assert of_evaluation == {
    'seed': 5,
    'max_examples': None,
    'personalize': None,
    'train_alone': None,
  }
  assert prepared['evaluate_fn'] is task.validation
  assert (prepared['test_fn'], prepared['resume_from']) == (task.test, 'previous')
  data, risk, room, noise = capsys.readouterr().err.splitlines()
  assert 'listens on all network interfaces' in risk
  assert data.endswith('; 7 clients, 140 examples')
  assert room == "(6, 8) {'num_unsaved': 4}"
  epsilon = private.accountant.epsilon(3, private.delta)
  assert noise.startswith(f'Noise multiplier 5: epsilon {epsilon:.3g} at delta 0.12 after 3 rounds')


def test_asynchronous_rounds_have_a_population_and_steps_that_are_fixed_their_cost():
  task = build_lib.tasks.load('least_squares', num_clients=9)
  given = resolve.resolve(task='least_squares', synchrony='buffered', concurrency=9, local_steps=5)
  config = build_lib._training_config(given, task, task.build_model(0))
  assert (config.asynchrony, config.population) == (asynchrony.Buffered(9), population.Population())
  assert config.cost_model.fixed_steps == 5


def test_a_weighting_that_a_task_has_not_is_refused():
  task = build_lib.tasks.load('least_squares', num_clients=9)
  with pytest.raises(ValueError, match='tokens: the task least_squares has no client_weight'):
    build_lib._check_data(resolve.resolve(task='shakespeare', clients_per_round=2), task)


def test_only_what_needs_it_measures_norms_at_the_server():
  def layers(*flags):
    factory = build_lib._aggregator(settings.of('--algorithm=fed_avg', *flags), None, None)
    kinds = []
    while factory is not None:
      kinds.append(type(factory).__name__)
      factory = factory._inner
      if isinstance(factory, tff.aggregators.MeanFactory):
        factory = None
    return kinds

  product = ['--attackers=0.2', '--attack=inner_product']
  assert layers('--ledger') == []  # Clients measure them.
  assert layers('--ledger', '--full_ledger') == ['ClientNormsFactory']
  assert layers('--cohort=importance') == ['ClientNormsFactory']
  assert layers('--ledger', '--attackers=0.2') == []
  assert layers(*product) == ['InnerProductFactory']
  # The norms are those of what attackers send.
  assert layers(*product, '--ledger') == ['InnerProductFactory', 'ClientNormsFactory']
