"""Every setting reaches the builder it belongs to."""

import pytest
import tensorflow as tf

from scripts.cli import build as build_lib, flags, resolve
from tff_adaptive.client import batching


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

    def record_server(entry, rate, values):
      seen['server'] = (entry.name, rate, dict(values))
      return entry.name

    def record(entry, model, **options):
      seen.update(options, name=entry.name, model=model)
      return 'process'

    monkeypatch.setattr(build_lib.algorithms, 'build_process', record)
    monkeypatch.setattr(build_lib.algorithms, 'build_server_optimizer', record_server)
    found = resolve.resolve(flags.parse(['train.py', *arguments]))
    assert build_lib.build_process(found, _Task, 'model') == 'process'
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
  seen = built(*flags.split(), '--clip_norm=5', '--seed=9', '--xla', '--client_weighting=uniform')
  training = seen['training']
  assert training.batching == batching.Batching(None, 3, fill_last=True, unit_starts='unit_starts')
  assert (training.weight_decay, training.clip_norm) == (0.1, 5.0)
  assert (training.seed, training.xla) == (9, True)
  assert seen['client_weighting'] == 'uniform'
  for task, weighting in (('digits', 'examples'), ('shakespeare', 'client_weight')):
    assert built(f'--task={task}')['client_weighting'] == weighting


def test_the_client_optimizer_and_local_steps_are_passed_on(built, tmp_path):
  flags = '--client_optimizer=sgdm --client_optimizer_option=momentum=0.5 --sam_rho=0.1'
  flags += ' --client_optimizer_state=keep --local_steps=4 --random_local_steps --with_replacement'
  seen = built(*flags.split())
  training = seen['training']
  state = training.optimizer.initialize(tf.TensorSpec([1]))
  assert (float(state['momentum']), training.optimizer_state) == (0.5, 'keep')
  assert training.sam_rho == 0.1
  found = training.batching
  assert (found.local_steps, found.random_local_steps, found.with_replacement) == (4, True, True)
  path = tmp_path / 'mine.py'
  path.write_text(
    'from tff_adaptive import optimizers\ndef own(rate, momentum: float = 0.7):\n'
    '  return optimizers.build_nesterov(rate, momentum=momentum)\n'
  )
  training = built(f'--client_optimizer={path}:own')['training']
  assert float(training.optimizer.initialize(tf.TensorSpec([1]))['momentum']) == 0.7


def test_schedules_are_passed_on(built):
  client = '--client_learning_rate=0.4 --client_schedule=exp_decay'
  client += ' --client_schedule_option=factor=0.5 --client_schedule_option=every=10'
  server = '--server_learning_rate=0.2 --server_schedule_option=warmup_rounds=4'
  seen = built(*client.split(), *server.split())
  assert [seen['client_learning_rate'](t) for t in (0, 9, 10)] == [0.4, 0.4, 0.2]
  _, schedule, _ = seen['server']
  assert [schedule(t) for t in (0, 7)] == pytest.approx([0.05, 0.2])


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
