"""Flags to settings: papers' defaults, and what stands for what; no TensorFlow."""

import pytest

from scripts.cli import resolve as resolve_lib
from tests.helpers import settings as settings_lib
from tff_adaptive import registry
from tff_adaptive_tasks import catalog


def resolve(*arguments):
  return settings_lib.of(*arguments).flat()


YOGI = catalog.rates('digits', 'yogi')


@pytest.mark.parametrize(
  'arguments, expected',
  [
    # A task brings its paper's values, and a given flag wins.
    (
      '--task=emnist_cr --algorithm=fed_adam',
      {
        **{'client_learning_rate': 10**-1.5, 'server_learning_rate': 10**-2.5, 'tau': 1e-4},
        **{'beta1': 0.9, 'beta2': 0.99, 'rounds': 1500, 'clients_per_round': 10, 'batch_size': 20},
        **{'client_weighting': 'examples', 'output_dir': 'runs/emnist_cr_fed_adam'},
      },
    ),
    ('--task=emnist_cr --tau=0.5', {'tau': 0.5}),
    ('--task=stackoverflow_nwp', {'client_weighting': 'tokens', 'max_examples_per_client': 1000}),
    ('--task=shakespeare --algorithm=fed_dyn', {'client_weighting': 'uniform'}),
    (
      '--task=emnist_letters --algorithm=ada_best',
      {
        **{'client_schedule': 'round_decay', 'client_weighting': 'uniform'},
        **{'mu': 0.02, 'beta': 0.96, 'weight_decay': 1e-4},
      },
    ),
    # A composition takes the rates tuned for its server.
    ('--algorithm=ada_best --server_optimizer=yogi', {**YOGI, 'mu': 0.02}),
    # So do corrections, but those for which another client rate was better.
    ('--algorithm=fed_rep', {'client_learning_rate': 0.1}),
    ('--algorithm=fed_babu', {'client_learning_rate': 0.03}),
    ('--algorithm=fed_babu+sam', {'client_learning_rate': 0.03}),
    ('--task=mnist_2nn --algorithm=fed_babu', {'client_learning_rate': 0.1}),
    # AdaBest keeps the paper's beta with SGD, and forgets sooner with other servers.
    ('--algorithm=ada_best', {'server_learning_rate': 1.0, 'beta': 0.96}),
    ('--algorithm=ada_best --server_optimizer=sgd', {'beta': 0.96}),
    ('--algorithm=ada_best --server_optimizer=nesterov', {'beta': 0.2}),
    ('--task_option=a=1 --task_option=a=2', {'task_option': ['a=2']}),
    ('--algorithm=ada_best --server_optimizer=adagrad', {'beta': 0.8}),
    ('--algorithm=ada_best --server_optimizer=yogi --beta=0.96', {'beta': 0.96}),
    # An optimizer for which nothing is tuned has a rate of its own.
    ('--client_optimizer=lion', {'client_learning_rate': 1e-4}),
    ('--algorithm=fed_avg --server_optimizer=lion', {'server_learning_rate': 1e-3}),
    # What clients do is the algorithm's.
    ('--algorithm=fed_sam --sam_rho=0.2', {'sam_rho': 0.2}),
    ('--algorithm=fed_speed', {'mu': 0.1}),
    # Noise has all clients count the same; without a flag nothing is aggregated otherwise.
    ('', {'aggregator': 'mean', 'target_epsilon': None, 'seed': 0, 'max_examples_per_client': 0}),
    ('', {'rounds_per_checkpoint': 50, 'weight_decay': 0, 'sam_rho': 0, 'fill_last_batch': 0}),
    ('--participation=0.1 --clients_per_step=6', {'clients_per_step': 6}),
    ('--aggregator=robust', {'client_weighting': 'examples'}),
    ('--aggregator=dp_tree --target_epsilon=1', {'client_weighting': 'uniform'}),
    # The number of clients is left to the data where an option decides it.
    ('--task_option=num_clients=80 --clients_per_round=70', {'clients_per_round': 70}),
  ],
)
def test_defaults_are_those_of_the_task_and_of_what_is_chosen(arguments, expected):
  run_settings = resolve(*arguments.split())
  for name, value in expected.items():
    assert run_settings[name] == pytest.approx(value), name


def test_an_algorithms_name_stands_for_what_clients_do():
  settings = resolve_lib.resolve(
    algorithm='diloco', client_optimizer_option=['decay=0.5'], clip_norm=3.0
  )
  flat = settings.flat()
  assert (flat['server_optimizer'], flat['server_learning_rate']) == ('nesterov', 0.7)
  assert (flat['momentum'], flat['clip_norm']) == (0.9, 3)
  assert settings.what.client_values == dict(beta1=0.9, beta2=0.95, tau=1e-8, decay=0.5)


def test_local_steps_of_a_task_or_of_scaffnew_which_draws_them_give_way_to_epochs():
  def steps(**given):
    local = resolve_lib.resolve(task='fed_heart', **given).training
    return local.local_steps, local.client_epochs, bool(local.continue_batches)

  assert steps() == (100, None, True)
  assert steps(local_steps=7) == (7, None, True)
  assert steps(client_epochs=2) == (None, 2, False)
  assert steps(with_replacement=True) == steps(batch_size=0) == (100, None, False)

  def how(**given):
    local = resolve_lib.resolve(algorithm='scaffnew', **given).training
    return local.cohort(60), local.local_steps, local.random_local_steps, local.client_epochs

  assert how() == how(task='fed_heart') == (60, 10, True, None)
  assert how(local_steps=5, clients_per_round=60) == (60, 5, True, None)
  assert how(client_epochs=2) == (60, None, None, 2)


@pytest.mark.parametrize('task', catalog.names())
def test_every_task_and_algorithm_has_settings(task):
  for algorithm in registry.ALGORITHMS:
    run_settings = resolve_lib.resolve(task=task, algorithm=algorithm)
    assert run_settings.rates.client(0) == run_settings.rates.client_learning_rate
    assert run_settings.rates.server(0) == run_settings.rates.server_learning_rate


def test_settings_do_not_change_and_are_equal_however_they_were_given():
  settings = resolve_lib.resolve({'tau': None, 'log_to': []}, seed=0)
  assert (settings == resolve_lib.resolve(), settings.given) == (True, {'seed': 0})
  for values in settings.correction, settings.server, settings.given:
    with pytest.raises(TypeError):
      values['mu'] = 3.0
  with pytest.raises(ValueError, match="unknown flag 'betta'"):
    resolve_lib.resolve(betta=0.5)
