"""Flags to settings: papers' defaults, refusals that name value, range and hint; no TensorFlow."""

import dataclasses

import pytest

from scripts.cli import flags, resolve as resolve_lib
from tff_adaptive import registry
from tff_adaptive.devices import cuda
from tff_adaptive_tasks import catalog


def resolve(*arguments):
  return resolve_lib.resolve(flags.parse(['train.py', *arguments])).flat()


def test_a_task_brings_its_papers_values_and_a_given_flag_wins():
  plain = resolve('--task=emnist_cr', '--algorithm=fed_adam')
  assert plain['client_learning_rate'] == pytest.approx(10**-1.5)
  assert plain['server_learning_rate'] == pytest.approx(10**-2.5)
  assert (plain['tau'], plain['beta1'], plain['beta2']) == (1e-4, 0.9, 0.99)
  assert (plain['rounds'], plain['clients_per_round'], plain['batch_size']) == (1500, 10, 20)
  assert plain['client_weighting'] == 'examples'
  assert plain['output_dir'] == 'runs/emnist_cr_fed_adam'
  assert resolve('--task=emnist_cr', '--tau=0.5')['tau'] == 0.5
  for task in ('shakespeare', 'stackoverflow_nwp'):
    assert resolve(f'--task={task}')['client_weighting'] == 'tokens'
    assert resolve(f'--task={task}', '--algorithm=fed_dyn')['client_weighting'] == 'uniform'
  letters = resolve('--task=emnist_letters', '--algorithm=ada_best')
  assert letters['client_schedule'] == 'round_decay'
  assert letters['client_weighting'] == 'uniform'
  assert (letters['mu'], letters['beta'], letters['weight_decay']) == (0.02, 0.96, 1e-4)


def test_a_composition_takes_the_rates_tuned_for_its_server():
  mixed = resolve('--algorithm=ada_best', '--server_optimizer=yogi')
  yogi = catalog.rates('digits', 'yogi')
  for name in ('server_learning_rate', 'tau'):
    assert mixed[name] == yogi[name]
  assert mixed['mu'] == 0.02
  assert resolve('--algorithm=ada_best')['server_learning_rate'] == 1.0


@pytest.mark.parametrize('task', ['digits', 'emnist_letters'])
def test_ada_best_keeps_the_papers_beta_with_sgd_and_forgets_sooner_with_other_servers(task):
  def beta(*arguments):
    return resolve(f'--task={task}', '--algorithm=ada_best', *arguments)['beta']

  assert beta() == beta('--server_optimizer=sgd') == 0.96
  servers = ('sgdm', 'adagrad', 'adam', 'yogi')
  found = [beta(f'--server_optimizer={server}') for server in servers]
  assert found == [0.2, 0.8, 0.2, 0.2]
  assert beta('--server_optimizer=yogi', '--beta=0.96') == 0.96


@pytest.mark.parametrize('task', catalog.names())
def test_every_task_and_algorithm_has_settings(task):
  for algorithm in registry.ALGORITHMS:
    found = resolve_lib.resolve(task=task, algorithm=algorithm)
    assert found.rates.client(0) == found.rates.client_learning_rate
    assert found.rates.server(0) == found.rates.server_learning_rate


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--task=digit'], ["unknown task 'digit'", 'Did you mean digits']),
    (['--algorithm=FedYogi'], ["unknown algorithm 'FedYogi'", 'fed_yogi']),
    (['--engine=gpu'], ["unknown engine 'gpu'", 'graph, native']),
    (['--device=gpu', '--engine=native'], ['--device=gpu', '--engine=native', 'without CUDA']),
    (['--device=gpu', '--ray=local'], ['--device=gpu', '--ray', '--gpus_per_worker=1']),
    *(
      (
        ['--task=shakespeare', '--task_option=lstm=compiled', *given],
        ['lstm=compiled', given[0].split('=')[0]],
      )
      for given in (
        ['--engine=native'],
        ['--xla'],
        ['--mixed_precision=bfloat16'],
        ['--gpus_per_worker=1', '--ray=auto'],
      )
    ),
    (['--client_learning_rate=-0.1'], ['--client_learning_rate', '-0.1', 'at least 0']),
    (['--server_learning_rate=nan'], ['--server_learning_rate', 'nan', 'finite']),
    (['--tau=0'], ['--tau', '0.0', 'above 0']),
    (['--beta1=1'], ['--beta1', '1.0', '[0, 1)']),
    (['--rounds=0'], ['--rounds', '0', 'at least 1']),
    (['--batch_size=-1'], ['--batch_size', '-1', 'give 0']),
    (['--client_epochs=2000000'], ['--client_epochs', 'at most 1048575']),
    (['--client_weighting=size'], ["'size'", 'examples, uniform']),
    (['--client_weighting=tokens'], ["'tokens'", 'examples, uniform']),
    (['--task_option=seed=3'], ['--task_option=seed=3', '--seed']),
    (['--client_schedule=stairs'], ['--client_schedule', "'stairs'", 'exp_decay']),
    (['--server_schedule_option=every=3'], ['--server_schedule', "'every'"]),
    (['--client_schedule_option=warmup_rounds'], ['NAME=VALUE']),
    (['--algorithm=scaffold', '--scaffold_option=3'], ['--scaffold_option', '3']),
    (['--algorithm=scaffold', '--client_state_store=tape'], ["'tape'", 'memory, disk']),
    # What would be ignored is refused.
    (['--algorithm=fed_avg', '--tau=0.1'], ['--tau', 'sgd', 'adagrad, adam, yogi']),
    (['--mu=0.1'], ['--mu', 'fed_yogi', 'fed_prox, fed_dyn, ada_best']),
    (['--client_state_store=disk'], ['--client_state_store', 'fed_yogi']),
    (['--server_optimizer=adam'], ['--server_optimizer=adam', '--algorithm=fed_adam']),
    (['--algorithm_option=a=1'], ['--algorithm_option=a=1', 'of your own']),
    (['--subrounds=4', '--engine=native'], ['--subrounds', '--engine=graph']),
    # What is known without the data.
    (['--clients_per_round=61'], ['--clients_per_round', 'from 1 to 60', '61']),
    (['--task=least_squares', '--clients_per_round=6'], ['from 1 to 5']),
    (['--clients_per_step=11'], ['--clients_per_step', 'at most 10', '11']),
    (['--clip_norm=1e308'], ['--clip_norm', 'float32']),
    (['--rounds=10000000000'], ['--rounds', '2147483647']),
    (['--task=mine.py:load'], ['--task=mine.py:load', 'a file that there is']),
    # What cannot be parsed.
    (['--rounds=many'], ['--rounds=many']),
    (['--round=3'], ["'round'", 'Did you mean']),
    (['digits'], ["'digits'", '--name=value']),
    (['--flagfile=/no/such/file'], ['flagfile', '/no/such/file']),
  ],
)
def test_bad_flags_are_refused_in_one_line(arguments, parts):
  with pytest.raises(ValueError) as caught:
    resolve(*arguments)
  message = str(caught.value)
  assert '\n' not in message
  for part in parts:
    assert part in message


def test_a_gpu_that_cannot_be_had_is_reported_before_anything_is_imported(monkeypatch):
  missing = ['libcudnn.so.8', 'libcuda.so.1']
  monkeypatch.setattr(cuda, 'missing_libraries', lambda build, can_open=None: list(missing))
  with pytest.raises(ValueError, match=r'--device=gpu: .*libcuda\.so\.1.*libcudnn\.so\.8.*env-gpu'):
    resolve('--device=gpu')
  missing.clear()
  assert resolve('--device=gpu')['device'] == 'gpu'


def test_the_number_of_clients_is_left_to_the_data_where_an_option_decides_it():
  found = resolve('--task_option=num_clients=80', '--clients_per_round=70')
  assert found['clients_per_round'] == 70


def test_settings_do_not_change():
  settings = resolve_lib.resolve(algorithm='ada_best', server_optimizer='yogi')
  with pytest.raises(dataclasses.FrozenInstanceError):
    settings.what.seed = 3
  for values in settings.correction, settings.server, settings.given:
    with pytest.raises(TypeError):
      values['mu'] = 3.0


def test_flags_and_keywords_give_the_same_settings():
  by_flags = resolve_lib.resolve(
    flags.parse(['', '--algorithm=ada_best', '--beta=0.5', '--seed=3'])
  )
  by_name = resolve_lib.resolve(algorithm='ada_best', beta=0.5, seed=3)
  assert by_flags == by_name
  assert by_name.correction['beta'] == 0.5
  with pytest.raises(ValueError, match="unknown flag 'betta'"):
    resolve_lib.resolve(betta=0.5)
