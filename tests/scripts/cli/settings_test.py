"""What settings decide: what a resumed run may change, how clients train, what goes together."""

import collections
import dataclasses
import importlib.util
import itertools
import types

import pytest

from scripts import export, partition_report, replay, report, sweep
from scripts.cli import hyperparameters, plan, resolve, search_space, settings
from scripts.cli.groups import aggregation
from tests.helpers.settings import of as settings_of
from tff_adaptive._utils import private_apis
from tff_adaptive.devices import cuda


def test_a_resumed_run_may_change_what_changes_no_number():
  assert {*settings.CHANGE_NO_NUMBER} == {
    'output_dir',
    'data_dir',
    'log_to',
    'resume_from',
    'config',
    'accept_other_versions',
    'check_ray',
    'target',
    'stop_at_target',
    'accept_lost_rows',
    'json',
    'quiet',
    'metric',
    'local_baseline_epochs',
    'early_stop',
    'patience',
    'min_delta',
    'keep_best',
    'ledger',
    'full_ledger',
    'trace_client',
    'max_megabytes',
    'max_gradients',
    'max_virtual_seconds',
    'virtual_seconds_per_evaluation',
    'rounds_per_evaluation',
    'rounds_per_checkpoint',
    'rounds_per_client_evaluation',
    'client_evaluation_clients',
    'personalization_epochs',
    'parallel_clients',
    'ray',
    'ray_workers',
    'cpus_per_worker',
    'memory_per_worker',
  }


_TASK = types.SimpleNamespace(unit_starts=None)


def test_steps_are_limited_where_late_clients_count_in_part():
  for more, limits in (({}, False), ({'stragglers': 'partial', 'round_deadline': 9.0}, True)):
    run_settings = resolve.resolve(client_epochs=2, **more)
    assert run_settings.client_training(_TASK).batching.step_limits == limits


def test_clients_train_for_the_epochs_of_the_settings_or_for_others():
  run_settings = resolve.resolve(client_epochs=2)
  for epochs, local in (
    (2, run_settings.client_training(_TASK)),
    (7, run_settings.client_training(_TASK, 7)),
  ):
    assert (local.batching.batch_size, local.batching.epochs) == (10, epochs)


def test_fine_tuning_has_epochs_where_training_has_steps():
  for name, expected in (('fed_avg', (100, False, True)), ('scaffnew', (10, True, False))):
    run_settings = resolve.resolve(algorithm=name, task='fed_heart' if expected[2] else 'digits')
    for epochs, how in ((None, expected), (2, (None, False, False))):
      local = run_settings.client_training(_TASK, epochs).batching
      assert (local.local_steps, local.random_local_steps, local.continue_batches) == how


def test_a_share_of_the_clients_stands_in_place_of_their_number():
  run_settings = resolve.resolve(participation=0.25, local_steps=7)
  flat = run_settings.flat()
  assert (flat['clients_per_round'], flat['client_epochs']) == (None, None)
  assert [run_settings.training.cohort(n) for n in (1, 10, 60)] == [1, 2, 15]
  assert run_settings.most_clients == 15


def test_what_a_flag_needs_and_what_it_stands_in_place_of():
  def by(key):
    names = collections.defaultdict(set)
    for field in settings.FIELDS:
      if field.metadata[key]:
        names[str(field.metadata[key])].add(field.name)
    return names

  assert by('needs') == {
    'local_steps': {'random_local_steps', 'continue_batches'},
    'round_deadline': {'stragglers'},
    'synchrony=buffered': {'buffer_size', 'concurrency', 'max_staleness', 'mixing'}
    | {'staleness', 'staleness_option'},
    'aggregator=dp_gaussian or dp_tree': {'target_epsilon', 'delta', 'noise_seed'},
    'rounds_per_client_evaluation': {'client_evaluation_clients', 'personalization_epochs'}
    | {'local_baseline_epochs'},
    'engine=graph': {'clients_per_step', 'parallel_clients', 'ray', 'subrounds'},
    'ray': {'ray_workers', 'cpus_per_worker', 'gpus_per_worker', 'memory_per_worker', 'check_ray'},
    'config': {'accept_other_versions'},
    'target': {'stop_at_target'},
    'early_stop': {'patience', 'min_delta'},
    'ledger': {'full_ledger'},
    'cohort': {'cohort_option'},
    'attackers': {'attack', 'attack_option'},
    'speed': {'speed_option'},
  }
  assert by('instead_of') == {
    'clients_per_round': {'participation', 'buffer_size'},
    'client_epochs': {'local_steps'},
    'rounds_per_evaluation': {'virtual_seconds_per_evaluation'},
  }


def test_groups_do_not_change_and_their_flags_have_a_help_and_say_what_they_may_be():
  groups = (*settings.GROUPS.values(), plan.Plan, report._Report)
  others = (export._Export, partition_report._Report, replay._Replay)
  values = (settings.Settings, search_space.Space, aggregation.PrivacyPlan, hyperparameters.Named)
  assert all(kind.__dataclass_params__.frozen for kind in (*groups, *others, *values))
  fields = [*itertools.chain.from_iterable(map(dataclasses.fields, groups))]
  assert all(f.kw_only and f.metadata['help'][-1] in '.)' for f in fields)
  assert all(field.kw_only for field in dataclasses.fields(settings.Settings))
  assert {f.name for f in fields if f.metadata['choices']} == {
    'client_optimizer_state',
    'stragglers',
    'synchrony',
    'attack',
    'engine',
    'device',
    'mixed_precision',
    'resume_from',
    'search',
    'prune',
    'form',
    'x',
    'clients',
  }
  assert {f.name for f in fields[len(settings.FIELDS) :] if f.metadata['needs']} == {
    'range',
    'trials',
    'search_seed',
    'first_rung',
    'reduction_factor',
    'formats',
  }


LSTM = '--task=shakespeare --task_option=lstm=compiled'
TREE = '--aggregator=dp_tree --aggregator_option=noise_multiplier=1'
BUFFERED = '--synchrony=buffered --concurrency=20 --buffer_size=5'


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
    (
      '--aggregator=secure --ledger --full_ledger',
      '--full_ledger writes down what --aggregator=se',
    ),
    (f'{TREE} --trace_client=x', '--trace_client writes down what --aggregator=dp_tree hides'),
    ('--full_ledger', '--full_ledger needs --ledger'),
    ('--rounds=0', '--rounds must be at least 1, found 0: give 1 or more'),
    ('--batch_size=-1', '--batch_size must be at least 0, found -1: give 0 for all'),
    ('--client_epochs=2000000', '--client_epochs must be at most 1048575'),
    ('--local_steps=1048577', '--local_steps must be at most 1048576'),
    (f'--seed={2**62}', '--seed must be at most 4611686018427387903'),
    ('--batch_size=1048577', '--batch_size must be at most 1048576'),
    ('--client_weighting=tokens', "'tokens'. Choose one of: examples, uniform"),
    ('--client_schedule=stairs', "--client_schedule: unknown schedule 'stairs'"),
    ('--server_schedule_option=every=3', '--server_schedule: unknown option of constant'),
    ('--algorithm=scaffold --scaffold_option=3', '--scaffold_option must be 1 or 2, found 3'),
    ('--clip_norm=1e308', '--clip_norm must be a number that float32 can hold'),
    # What would be ignored is refused.
    ('--algorithm=fed_avg --tau=0.1', 'server optimizer sgd; leave it out (it belongs to adagrad,'),
    ('--mu=0.1', '--algorithm fed_yogi; leave it out (it belongs to fed_prox, fed_dyn, ada_best,'),
    ('--server_optimizer=adam', 'whose server is yogi; take --algorithm=fed_adam, or a drift-'),
    ('--server_optimizer=lion', 'take --algorithm=fed_avg, or a drift-corrected algorithm'),
    (
      '--algorithm_option=a=1',
      '--algorithm_option=a=1 is for a chain, or FILE.py:NAME of your own: give --a',
    ),
    # Client optimizers, local steps.
    ('--client_optimizer=adm', "--client_optimizer: unknown client optimizer 'adm'. Did you mean"),
    ('--client_optimizer=adam --client_optimizer_option=beta=0', "option of adam 'beta'"),
    ('--client_optimizer_state=keep', 'has no meaning for --client_optimizer=sgd, which has no'),
    ('--algorithm=fed_nova --client_optimizer=adamw', '--algorithm fed_nova: its normalisation co'),
    ('--algorithm=diloco --client_optimizer=sgd', '--algorithm diloco, which stands for adamw:'),
    ('--algorithm=fed_lalr --client_optimizer_state=keep', 'which stands for average: leave'),
    ('--algorithm=fed_sam --sam_rho=0', '--sam_rho=0.0 does not go with --algorithm fed_sam'),
    ('--local_steps=5 --continue_batches --with_replacement', 'with --with_replacement=True'),
    ('--with_replacement --batch_size=0', '--with_replacement needs batches'),
    ('--participation=0.1 --clients_per_step=7', 'must be at most 6, the number of clients in a'),
    # What is known without the data.
    ('--clients_per_round=61', 'must be from 1 to 60, which are all clients;'),
    # What cannot be parsed.
    ('--round=3', 'unknown flag --round: did you mean --rounds or'),
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
    ('--ray=local --ray_workers=5 --subrounds=4', '--subrounds must be at least 5'),
    # Aggregation and privacy.
    ('--aggregator_option=norm=1', "--aggregator_option: unknown option of mean 'norm'"),
    ('--aggregator=clipping --algorithm=scaffold', '--aggregator: clipping does not clip'),
    (f'{TREE} --client_weighting=examples', 'has no weights'),
    ('--aggregator=secure --engine=native', 'does not go with --engine=native: '),
    ('--aggregator=secure --algorithm=fed_lalr', "the states of the clients' optimizers, whose"),
    ('--aggregator=dp_tree', 'needs either --target_epsilon or'),
    (f'{TREE} --target_epsilon=3', 'give one of them'),
    ('--aggregator=dp_tree --target_epsilon=0', '--target_epsilon must be finite and above 0'),
    (f'{TREE} --noise_seed={2**62}', '--noise_seed must be at most 4611686018427387903'),
    (f'{TREE} --delta=0', '--delta must be above 0'),
    (f'{TREE} --delta=1', '--delta must be in [0, 1)'),
    (f'{TREE} --dropout_rate=0.1', 'its epsilon assumes that each cohort is drawn from all'),
    # Evaluation by client.
    ('--heldout_clients=1', '--heldout_clients must be in [0, 1), found 1'),
    ('--heldout_examples=-0.1', '--heldout_examples must be in [0, 1)'),
    ('--rounds_per_client_evaluation=5 --personalization_epochs=1', 'needs examples that fine-tu'),
    ('--personalization_epochs=1048576', '--personalization_epochs must be at most 1048575'),
    ('--target=nan', '--target must be finite'),
    ('--log_to=mlfow', "--log_to: unknown log_to 'mlfow'. Did you mean mlflow"),
    # A population.
    ('--availability=dayly', "--availability: unknown availability 'dayly'"),
    ('--availability_option=share=0.5', "unknown option of always 'share'"),
    ('--availability=diurnal --availability_option=share=2', 'share must be in (0, 1], found 2'),
    ('--client_profiles=clients.txt', '--client_profiles=clients.txt: give a file whose name'),
    ('--seconds_per_step=0', '--seconds_per_step must be finite and above 0'),
    ('--speed_sigma=-1', '--speed_sigma must be finite and at least 0'),
    ('--over_select=0.5', '--over_select must be finite and at least 1'),
    ('--dropout_rate=1', '--dropout_rate must be in [0, 1)'),
    # Asynchronous training.
    ('--synchrony=buffered', 'needs --concurrency'),
    ('--synchrony=synchronous --concurrency=9', '--concurrency needs --synchrony=buffered'),
    (f'{BUFFERED} --clients_per_round=5', '--buffer_size stands in place of --clients_per_round'),
    (f'{BUFFERED} --participation=0.2', '--buffer_size stands in place of --participation'),
    (f'{BUFFERED} --algorithm=scaffnew', 'needs all 60 clients in every round, found 5'),
    (f'{BUFFERED} --over_select=1.3', '--over_select has no meaning'),
    (f'{BUFFERED} --staleness_option=b=3', "unknown option of polynomial 'b'"),
    (f'{BUFFERED} --algorithm=mime', 'the clients of mime exchange values before any of them'),
    (
      '--algorithm=mime --sam_rho=0.1',
      '--sam_rho: mime cannot be combined with sam: its difference',
    ),
    ('--algorithm=scaffold+sam --sam_rho=0.1', '--sam_rho: sam stands more than once in'),
    ('--algorithm=fed_avg+clip --clip_norm=1', '--clip_norm: clip stands more than once in'),
    ('--algorithm=scaffnew --dropout_rate=0.1', 'leave out the flags of unavailable'),
    (f'{BUFFERED} {TREE}', 'does not go with --synchrony=buffered'),
  ],
)
def test_bad_flags_are_refused_in_one_line(arguments, words):
  if '--ray=' in arguments:
    pytest.importorskip('ray')
  with pytest.raises(ValueError) as caught:
    settings_of(*arguments.split())
  assert words in str(caught.value)
  assert '\n' not in str(caught.value)


def test_a_gpu_that_cannot_be_had_is_reported_before_anything_is_imported(monkeypatch):
  missing = ['libcudnn.so.9', 'libcuda.so.1']
  monkeypatch.setattr(cuda, 'missing_libraries', lambda: list(missing))
  monkeypatch.setattr(private_apis, 'installed_build', lambda: {'is_cuda_build': True})
  with pytest.raises(ValueError, match=r'--device=gpu: .*libcuda\.so\.1.*libcudnn\.so\.9.*env-gpu'):
    settings_of('--device=gpu')
  missing.clear()
  assert settings_of('--device=gpu').runtime.device == 'gpu'


@pytest.mark.parametrize(
  'flag, extra', [('--log_to=mlflow', 'mlflow'), ('--log_to=wandb', 'wandb'), ('--ray=auto', 'ray')]
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(flag, extra, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=rf'pip install tff-adaptive\[{extra}\]'):
    settings_of(flag)
  with pytest.raises(ValueError, match=r'pip install tff-adaptive\[search\]'):
    sweep._check_flags(plan.Plan(), ['seed'])
