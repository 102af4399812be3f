"""Flags to settings: papers' defaults, refusals that name value, range and hint; no TensorFlow."""

import dataclasses

import pytest

from scripts.cli import flags, resolve as resolve_lib
from tff_adaptive import registry
from tff_adaptive.devices import cuda
from tff_adaptive_tasks import catalog


def resolve(*arguments):
  return resolve_lib.resolve(flags.parse(['train.py', *arguments])).flat()


YOGI = catalog.rates('digits', 'yogi')
NOISE = '--aggregator_option=noise_multiplier=1'


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
    ('--task=stackoverflow_nwp', {'client_weighting': 'tokens'}),
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
    # AdaBest keeps the paper's beta with SGD, and forgets sooner with other servers.
    ('--algorithm=ada_best', {'server_learning_rate': 1.0, 'beta': 0.96}),
    ('--algorithm=ada_best --server_optimizer=sgd', {'beta': 0.96}),
    ('--algorithm=ada_best --server_optimizer=sgdm', {'beta': 0.2}),
    ('--algorithm=ada_best --server_optimizer=adagrad', {'beta': 0.8}),
    ('--algorithm=ada_best --server_optimizer=yogi --beta=0.96', {'beta': 0.96}),
    # An optimizer for which nothing is tuned has a rate of its own.
    ('--client_optimizer=lion', {'client_learning_rate': 1e-4}),
    ('--algorithm=fed_avg --server_optimizer=lion', {'server_learning_rate': 1e-3}),
    ('--algorithm=fed_avg --server_optimizer=lion', {'client_learning_rate': 0.1}),
    # What clients do is the algorithm's.
    ('--algorithm=fed_sam --sam_rho=0.2', {'sam_rho': 0.2}),
    ('--algorithm=fed_speed', {'mu': 0.1}),
    # Noise has all clients count the same; without a flag nothing is aggregated otherwise.
    ('', {'aggregator': 'mean', 'target_epsilon': None, 'rounds_per_checkpoint': 50}),
    ('--participation=0.1 --clients_per_step=6', {'clients_per_step': 6}),
    ('--aggregator=robust', {'client_weighting': 'examples'}),
    (f'--aggregator=dp_gaussian {NOISE}', {'client_weighting': 'uniform'}),
    # The number of clients is left to the data where an option decides it.
    ('--task_option=num_clients=80 --clients_per_round=70', {'clients_per_round': 70}),
  ],
)
def test_defaults_are_those_of_the_task_and_of_what_is_chosen(arguments, expected):
  found = resolve(*arguments.split())
  assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_an_algorithms_name_stands_for_what_clients_do():
  settings = resolve_lib.resolve(
    algorithm='diloco', client_optimizer_option=['decay=0.5'], clip_norm=3.0
  )
  found = settings.flat()
  assert (found['server_optimizer'], found['server_learning_rate']) == ('nesterov', 0.7)
  assert (found['momentum'], found['clip_norm'], found['client_state_store']) == (0.9, 3, 'memory')
  assert settings.what.client_values == dict(beta1=0.9, beta2=0.95, tau=1e-8, decay=0.5)


def test_a_share_of_the_clients_and_local_steps_stand_for_numbers():
  found = resolve_lib.resolve(participation=0.25, local_steps=7)
  assert (found.flat()['clients_per_round'], found.flat()['client_epochs']) == (None, None)
  assert [found.training.cohort(n) for n in (1, 60)] == [1, 15]
  assert found.most_clients == 15


def test_a_tasks_own_local_steps_give_way_to_epochs():
  def steps(**given):
    own = resolve_lib.resolve(task='fed_heart', **given).training
    return own.local_steps, own.client_epochs, bool(own.continue_batches)

  assert steps() == (100, None, True)
  assert steps(local_steps=7) == (7, None, True)
  assert steps(client_epochs=2) == (None, 2, False)
  assert steps(with_replacement=True) == steps(batch_size=0) == (100, None, False)


def test_scaffnew_has_all_clients_and_a_random_number_of_steps_unless_passes_are_given():
  def how(**given):
    found = resolve_lib.resolve(algorithm='scaffnew', **given).training
    return found.cohort(60), found.local_steps, found.random_local_steps, found.client_epochs

  assert how() == how(task='fed_heart') == (60, 10, True, None)
  assert how(local_steps=5, clients_per_round=60) == (60, 5, True, None)
  assert how(client_epochs=2) == (60, None, None, 2)


@pytest.mark.parametrize('task', catalog.names())
def test_every_task_and_algorithm_has_settings(task):
  for algorithm in registry.ALGORITHMS:
    found = resolve_lib.resolve(task=task, algorithm=algorithm)
    assert found.rates.client(0) == found.rates.client_learning_rate
    assert found.rates.server(0) == found.rates.server_learning_rate


LSTM = '--task=shakespeare --task_option=lstm=compiled'
TREE = f'--aggregator=dp_tree {NOISE}'
BY_CLIENT = '--rounds_per_client_evaluation=5'


@pytest.mark.parametrize(
  'arguments, words',
  [
    ('--task=digit', "unknown task 'digit'. Did you mean digits"),
    ('--algorithm=FedYogi', "unknown algorithm 'FedYogi'. Did you mean fed_yogi"),
    ('--algorithm=scaffnew --clients_per_round=9', 'needs all 60 clients in every round, found 9'),
    ('--server_optimizer=addam', "--server_optimizer: unknown server optimizer 'addam'. Did you m"),
    ('--client_learning_rate=-0.1', '--client_learning_rate must be finite and at least 0, found'),
    ('--tau=0', '--tau must be finite and above 0, found 0.0'),
    ('--beta1=1', '--beta1 must be in [0, 1), found 1.0'),
    ('--rounds=0', '--rounds must be at least 1, found 0: give 1 or more'),
    ('--batch_size=-1', '--batch_size must be at least 0, found -1: give 0 for all'),
    ('--client_epochs=2000000', '--client_epochs must be at most 1048575'),
    ('--local_steps=1048577', '--local_steps must be at most 1048576'),
    ('--batch_size=1048577', '--batch_size must be at most 1048576'),
    ('--client_weighting=tokens', "'tokens'. Choose one of: examples, uniform"),
    ('--client_schedule=stairs', "--client_schedule: unknown schedule 'stairs'"),
    ('--server_schedule_option=every=3', '--server_schedule: unknown hyperparameter of constant'),
    ('--algorithm=scaffold --scaffold_option=3', '--scaffold_option must be 1 or 2, found 3'),
    ('--clip_norm=1e308', '--clip_norm must be a number that float32 can hold'),
    # What would be ignored is refused.
    ('--algorithm=fed_avg --tau=0.1', 'server optimizer sgd; leave it out (it belongs to adagrad,'),
    ('--mu=0.1', '--algorithm fed_yogi; leave it out (it belongs to fed_prox, fed_dyn, ada_best,'),
    ('--client_state_store=shards', '--client_state_store has no meaning for --algorithm fed_yogi'),
    ('--server_optimizer=adam', 'whose server is yogi; take --algorithm=fed_adam, or a drift-'),
    ('--server_optimizer=lion', 'take --algorithm=fed_avg, or a drift-corrected algorithm'),
    ('--algorithm_option=a=1', '--algorithm_option=a=1 is for FILE.py:NAME of your own: give --a'),
    # Client optimizers, local steps.
    ('--client_optimizer=adm', "--client_optimizer: unknown client optimizer 'adm'. Did you mean"),
    ('--client_optimizer=adam --client_optimizer_option=beta=0', "hyperparameter of adam 'beta'"),
    ('--client_optimizer_state=keep', 'has no meaning for --client_optimizer=sgd, which has no'),
    ('--algorithm=fed_nova --client_optimizer=adamw', '--algorithm fed_nova: its normalisation co'),
    ('--algorithm=diloco --client_optimizer=sgd', '--algorithm diloco, which stands for adamw:'),
    ('--algorithm=fed_lalr --client_optimizer_state=keep', 'which stands for average: leave'),
    ('--algorithm=fed_sam --sam_rho=0', '--sam_rho=0.0 does not go with --algorithm fed_sam'),
    ('--algorithm=fed_lalr --aggregator=secure', "the states of the clients' optimizers, whose"),
    ('--local_steps=5 --continue_batches --with_replacement', 'with --with_replacement=True'),
    ('--with_replacement --batch_size=0', '--with_replacement needs batches'),
    ('--participation=0.1 --clients_per_step=7', 'must be at most 6, the clients of a round'),
    # What is known without the data.
    ('--clients_per_round=61', '--clients_per_round must be from 1 to 60, the clients there are;'),
    # What cannot be parsed.
    ('--round=3', "'round'. Did you mean"),
    ('digits', "unexpected argument 'digits'; flags are written --name=value"),
    # Where it runs.
    ('--device=gpu --engine=native', '--device=gpu does not go with --engine=native'),
    ('--device=gpu --ray=local', '--device=gpu does not go with --ray: give --gpus_per_worker=1'),
    (f'{LSTM} --engine=native', 'lstm=compiled does not go with --engine=native'),
    (f'{LSTM} --xla', 'lstm=compiled does not go with --xla'),
    (f'{LSTM} --mixed_precision=bfloat16', 'lstm=compiled does not go with --mixed_precision'),
    (f'{LSTM} --gpus_per_worker=1 --ray=auto', 'compiled does not go with --gpus_per_worker'),
    ('--ray=ray://head:1', "--ray must be local, auto or host:port, found 'ray://head:1'"),
    ('--ray=local --memory_per_worker=0', '--memory_per_worker must be finite and above 0'),
    ('--ray=local --parallel_clients=2', '--parallel_clients does not go with --ray: --cpus'),
    ('--ray=local --clients_per_step=2', '--clients_per_step does not go with --ray'),
    ('--ray=local --ray_workers=5 --subrounds=4', '--subrounds must be at least 5'),
    # Aggregation and privacy.
    ('--aggregator_option=norm=1', "--aggregator_option: unknown hyperparameter of mean 'norm'"),
    ('--aggregator=clipping --aggregator_option=norm=-1', 'norm must be finite and above 0'),
    ('--aggregator=clipping --algorithm=scaffold', '--aggregator: clipping does not clip'),
    (f'{TREE} --client_weighting=examples', 'weighs no clients'),
    ('--aggregator=secure --engine=native', 'does not go with --engine=native: '),
    ('--aggregator=dp_tree', 'needs either --target_epsilon or'),
    (f'{TREE} --target_epsilon=3', 'give one of them'),
    ('--aggregator=dp_tree --target_epsilon=0', '--target_epsilon must be finite and above 0'),
    (f'{TREE} --delta=0', '--delta must be above 0'),
    (f'{TREE} --delta=1', '--delta must be in [0, 1)'),
    (f'{TREE} --dropout_rate=0.1', 'its epsilon supposes that each round is drawn from all'),
    # Evaluation by client.
    ('--heldout_clients=1', '--heldout_clients must be in [0, 1), found 1'),
    ('--heldout_examples=-0.1', '--heldout_examples must be in [0, 1)'),
    (f'{BY_CLIENT} --personalization_epochs=1', 'wants examples that fine-tuning has not seen'),
    ('--target=nan', '--target must be finite'),
    ('--log_to=mlfow', "--log_to: unknown log_to 'mlfow'. Did you mean mlflow"),
    # A population.
    ('--availability=dayly', "--availability: unknown availability 'dayly'"),
    ('--availability=diurnal --availability_option=day=3', "unknown option of diurnal 'day'"),
    ('--availability_option=share=0.5', "--availability_option: unknown option of always 'share'"),
    ('--availability=diurnal --availability_option=share=2', 'share must be in (0, 1], found 2'),
    ('--client_profiles=clients.txt', '--client_profiles=clients.txt: give a file whose name'),
    ('--seconds_per_step=0', '--seconds_per_step must be finite and above 0'),
    ('--speed_sigma=-1', '--speed_sigma must be finite and at least 0'),
    ('--over_select=0.5', '--over_select must be finite and at least 1'),
    ('--dropout_rate=1', '--dropout_rate must be in [0, 1)'),
  ],
)
def test_bad_flags_are_refused_in_one_line(arguments, words):
  if '--ray=' in arguments:
    pytest.importorskip('ray')
  with pytest.raises(ValueError) as caught:
    resolve(*arguments.split())
  assert words in str(caught.value)
  assert '\n' not in str(caught.value)


def test_a_gpu_that_cannot_be_had_is_reported_before_anything_is_imported(monkeypatch):
  missing = ['libcudnn.so.8', 'libcuda.so.1']
  monkeypatch.setattr(cuda, 'missing_libraries', lambda: list(missing))
  with pytest.raises(ValueError, match=r'--device=gpu: .*libcuda\.so\.1.*libcudnn\.so\.8.*env-gpu'):
    resolve('--device=gpu')
  missing.clear()
  assert resolve('--device=gpu')['device'] == 'gpu'


def test_settings_do_not_change():
  settings = resolve_lib.resolve(algorithm='ada_best', server_optimizer='yogi')
  with pytest.raises(dataclasses.FrozenInstanceError):
    settings.what.seed = 3
  for values in settings.correction, settings.server, settings.given:
    with pytest.raises(TypeError):
      values['mu'] = 3.0


def test_a_keyword_that_is_no_flag_is_refused():
  with pytest.raises(ValueError, match="unknown flag 'betta'"):
    resolve_lib.resolve(betta=0.5)
