"""Every setting reaches the builder it belongs to."""

import pytest

from scripts import flags, processes, settings
from tff_adaptive import batching


class _Clients:
  """Three clients of 2, 4 and 9 examples."""

  client_ids = ('a', 'b', 'c')

  def num_examples(self, client_id):
    return {'a': 2, 'b': 4, 'c': 9}[client_id]


class _Task:
  train = _Clients()
  unit_starts, client_weight = 'unit_starts', 'client_weight'


@pytest.fixture
def built(monkeypatch):
  """Builds with recorders in place of the builders: arguments -> what they were given."""

  def build(*arguments):
    seen = {}

    def recorder(key):
      def record(*positional, **options):
        seen[key] = (positional, options)
        return key

      return record

    monkeypatch.setattr(processes.algorithms, 'build', recorder('algorithm'))
    for name in ('sgdm', 'adagrad', 'adam', 'yogi'):
      monkeypatch.setattr(processes.optimizers, f'build_{name}', recorder(name))
    found = settings.resolve(flags.parse(['train.py', *arguments]))
    assert processes.build_process(found, _Task, 'model') == 'algorithm'
    return seen

  return build


def test_named_servers_take_their_own_options(built):
  seen = built('--tau=0.5', '--beta1=0.8', '--beta2=0.7', '--bias_correction', '--initial_v=0.1')
  (name, model), options = seen['algorithm']
  assert (name, model) == ('fed_yogi', 'model')
  expected = dict(tau=0.5, beta1=0.8, beta2=0.7, bias_correction=True, initial_v=0.1)
  assert expected.items() <= options.items()
  assert options['server_learning_rate'] == 0.01
  assert 'server_schedule' not in options
  _, options = built('--algorithm=fed_avgm', '--momentum=0.3')['algorithm']
  assert options['momentum'] == 0.3
  _, options = built('--algorithm=fed_adagrad')['algorithm']
  assert options['beta1'] == 0.0
  assert 'beta2' not in options


def test_what_clients_do_is_passed_on(built):
  _, options = built(
    '--client_epochs=3',
    '--batch_size=0',
    '--fill_last_batch',
    '--weight_decay=0.1',
    '--clip_norm=5',
    '--seed=9',
    '--client_weighting=uniform',
  )['algorithm']
  assert options['batching'] == batching.Batching(
    None, 3, fill_last=True, unit_starts='unit_starts'
  )
  assert (options['weight_decay'], options['clip_norm'], options['seed']) == (0.1, 5.0, 9)
  assert options['client_weighting'] == 'uniform'
  for task, weighting in (('digits', 'examples'), ('shakespeare', 'client_weight')):
    assert built(f'--task={task}')['algorithm'][1]['client_weighting'] == weighting


def test_schedules_are_passed_on(built):
  _, options = built(
    '--client_learning_rate=0.4',
    '--client_schedule=exp_decay',
    '--client_schedule_option=factor=0.5',
    '--client_schedule_option=every=10',
    '--server_learning_rate=0.2',
    '--server_schedule_option=warmup_rounds=4',
  )['algorithm']
  assert [options['client_learning_rate'](t) for t in (0, 9, 10)] == [0.4, 0.4, 0.2]
  assert options['server_schedule'](0) == pytest.approx(0.05)
  assert options['server_schedule'](7) == pytest.approx(0.2)


def test_corrections_take_any_server_and_their_own_options(built):
  seen = built('--algorithm=ada_best', '--server_optimizer=adam', '--beta_decay=0.9', '--tau=0.1')
  (name, _), options = seen['algorithm']
  assert name == 'ada_best'
  assert options['server_optimizer'] == 'adam'
  assert seen['adam'][0] == (0.01,)
  assert seen['adam'][1]['tau'] == 0.1
  # With an adaptive server AdaBest forgets sooner by default.
  assert (options['mu'], options['beta'], options['plateau_decay']) == (0.02, 0.2, 0.9)
  seen = built('--algorithm=scaffold', '--scaffold_option=1')
  assert seen['sgdm'] == ((1.0,), {})
  _, options = seen['algorithm']
  assert (options['num_clients'], options['option']) == (3, 1)
  _, options = built('--algorithm=fed_dyn', '--scale_mu', '--max_examples_per_client=6')[
    'algorithm'
  ]
  assert options['mean_examples'] == 4  # Of 2, 4 and 6.
  _, options = built('--algorithm=fed_prox', '--mu=0.3')['algorithm']
  assert options['mu'] == 0.3


def test_every_algorithm_and_server_is_built_by_the_real_builders():
  import tasks
  from tff_adaptive import names

  task = tasks.load('digits', num_clients=3)
  model = task.build_model(0)
  for algorithm in names.ALGORITHMS:
    servers = names.SERVER_OPTIMIZERS if algorithm == 'ada_best' else [None]
    for server in servers:
      more = [f'--server_optimizer={server}'] if server else []
      found = settings.resolve(flags.parse(['train.py', f'--algorithm={algorithm}', *more]))
      process = processes.build_process(found, task, model)
      assert hasattr(process, 'initial_client_state') == names.ALGORITHMS[algorithm].is_stateful
