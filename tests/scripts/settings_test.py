"""Flags to settings: papers' defaults, refusals that name value, range and mend; no TensorFlow."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from scripts import flags, run_folder, settings
from tasks import catalog
from tff_adaptive import cuda, names


def resolve(*arguments):
  return settings.resolve(flags.parse(['train.py', *arguments]))


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
  yogi = catalog.defaults('digits', 'fed_yogi')
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
  for algorithm in names.ALGORITHMS:
    found = resolve(f'--task={task}', f'--algorithm={algorithm}')
    settings.schedule(found, 'client')
    settings.schedule(found, 'server')


def test_task_options_are_numbers_truth_values_or_texts():
  pairs = ['a=1', 'b=0.5', 'c=True', 'd=false', 'e=some=text', 'f=inf']
  found = settings.options({'task_option': pairs}, 'task_option')
  expected = {'a': 1, 'b': 0.5, 'c': True, 'd': False, 'e': 'some=text', 'f': float('inf')}
  assert found == expected
  assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]


def test_flagfiles_are_read_and_later_flags_win(tmp_path):
  path = tmp_path / 'some.flags'
  path.write_text('# a comment\n--task=digits\n--tau=0.25\n--rounds=7\n')
  found = resolve(f'--flagfile={path}', '--rounds=9')
  assert (found['tau'], found['rounds']) == (0.25, 9)


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--task=digit'], ["unknown task 'digit'", 'Did you mean digits']),
    (['--algorithm=FedYogi'], ["unknown algorithm 'FedYogi'", 'fed_yogi']),
    (['--engine=gpu'], ["unknown engine 'gpu'", 'graph, native']),
    (['--device=tpu'], ["unknown device 'tpu'", 'auto, cpu, gpu']),
    (['--device=gpu', '--engine=native'], ['--device=gpu', '--engine=native', 'without CUDA']),
    (['--device=gpu', '--workers=localhost:5'], ['--device=gpu', '--workers', 'without CUDA']),
    (['--mixed_precision=float8'], ["'float8'", 'bfloat16, float16']),
    (['--client_learning_rate=-0.1'], ['--client_learning_rate', '-0.1', 'at least 0']),
    (['--server_learning_rate=nan'], ['--server_learning_rate', 'nan', 'finite']),
    (['--server_learning_rate=inf'], ['--server_learning_rate', 'inf', 'finite']),
    (['--tau=0'], ['--tau', '0.0', 'above 0']),
    (['--tau=-1'], ['--tau', '-1.0', 'above 0']),
    (['--beta1=1'], ['--beta1', '1.0', '[0, 1)']),
    (['--beta2=-0.1'], ['--beta2', '-0.1', '[0, 1)']),
    (['--algorithm=fed_avgm', '--momentum=1.5'], ['--momentum', '1.5', '[0, 1)']),
    (['--initial_v=-1'], ['--initial_v', '-1.0']),
    (['--rounds=0'], ['--rounds', '0', 'at least 1']),
    (['--clients_per_round=-3'], ['--clients_per_round', '-3']),
    (['--batch_size=-1'], ['--batch_size', '-1', 'give 0']),
    (['--client_epochs=0'], ['--client_epochs', '0']),
    (['--client_epochs=2000000'], ['--client_epochs', 'below 2**20']),
    (['--batch_size=3000000000'], ['--batch_size', 'below 2**31']),
    (['--max_examples_per_client=-1'], ['--max_examples_per_client', '-1']),
    (['--rounds_per_evaluation=0'], ['--rounds_per_evaluation', '0']),
    (['--rounds_per_checkpoint=0'], ['--rounds_per_checkpoint', '0']),
    (['--seed=-1'], ['--seed', '-1']),
    (['--client_weighting=size'], ["'size'", 'examples, uniform']),
    (['--client_weighting=tokens'], ["'tokens'", 'examples, uniform']),
    (['--task_option=seed=3'], ['--task_option=seed=3', '--seed']),
    (['--weight_decay=-1'], ['--weight_decay', '-1.0']),
    (['--clip_norm=0'], ['--clip_norm', '0.0']),
    (['--client_schedule=stairs'], ['--client_schedule', "'stairs'", 'exp_decay']),
    (['--server_schedule_option=every=3'], ['--server_schedule', "'every'"]),
    (['--client_schedule_option=warmup_rounds'], ['NAME=VALUE']),
    (['--task_option=alpha'], ['--task_option=alpha', 'NAME=VALUE']),
    (['--algorithm=fed_prox', '--mu=-1'], ['--mu', '-1.0']),
    (['--algorithm=ada_best', '--beta=1.5'], ['--beta', '1.5', '[0, 1]']),
    (['--algorithm=ada_best', '--beta_decay=0'], ['--beta_decay', '0.0', 'above 0']),
    (['--algorithm=scaffold', '--scaffold_option=3'], ['--scaffold_option', '3']),
    (['--algorithm=scaffold', '--client_state_store=tape'], ["'tape'", 'memory, disk']),
    # What would be ignored is refused.
    (['--algorithm=fed_avg', '--tau=0.1'], ['--tau', 'sgd', 'adagrad, adam, yogi']),
    (['--mu=0.1'], ['--mu', 'fed_yogi', 'fed_prox, fed_dyn, ada_best']),
    (['--client_state_store=disk'], ['--client_state_store', 'fed_yogi']),
    (['--server_optimizer=adam'], ['--server_optimizer=adam', '--algorithm=fed_adam']),
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


def test_a_gpu_that_cannot_be_had_is_told_before_anything_is_imported(monkeypatch):
  missing = ['libcudnn.so.8', 'libcuda.so.1']
  monkeypatch.setattr(cuda, 'missing_libraries', lambda build, can_open=None: list(missing))
  with pytest.raises(ValueError, match=r'--device=gpu: .*libcuda\.so\.1.*libcudnn\.so\.8.*env-gpu'):
    resolve('--device=gpu')
  missing.clear()
  assert resolve('--device=gpu')['device'] == 'gpu'


def test_only_changes_that_matter_are_refused():
  before = resolve('--rounds=10')
  now = resolve('--rounds=20', '--rounds_per_checkpoint=3', '--output_dir=x')
  assert settings.refused_changes(before, now) == []
  now = resolve('--tau=0.5', '--seed=3')
  refused = settings.refused_changes(before, now)
  assert refused == ['--seed was 0 and is now 3', '--tau was 0.001 and is now 0.5']


def test_a_resumed_run_notes_what_changed(tmp_path):
  before, now = resolve('--rounds=10'), resolve('--rounds=20')
  data = {'source': 'here', 'clients': 3, 'examples': 30}
  folder = str(tmp_path / 'new')
  config = run_folder.open_config(folder, before, data, 5, ['train.py'])
  assert run_folder.open_config(folder, now, data, 5, ['train.py', 'again']) == config
  run_folder.note_changes(folder, before)
  assert run_folder.read_config(folder, now) == config
  run_folder.note_changes(folder, now)
  again = run_folder.read_config(folder, now)
  assert again['changes'][0]['rounds'] == [10, 20]
  assert again['settings']['rounds'] == 20
  assert again['run_id'] == config['run_id']
  run_folder.open_config(folder, now, {**data, 'source': 'elsewhere'}, 5, [])
  with pytest.raises(ValueError, match='clients was 3 and is now 4'):
    run_folder.open_config(folder, now, {**data, 'clients': 4}, 5, [])


def test_of_two_starts_at_once_the_second_takes_the_run_of_the_first(tmp_path, monkeypatch):
  given = str(tmp_path), resolve(), {'clients': 3}, 5
  first = run_folder.open_config(*given, ['first'])
  reads = iter([lambda *_: None])  # The second looked before the first had written.
  read = run_folder.read_config
  monkeypatch.setattr(run_folder, 'read_config', lambda *a: next(reads, read)(*a))
  assert run_folder.open_config(*given, ['second']) == first
  assert read(*given[:2]) == first


def test_a_start_that_is_killed_while_it_writes_is_no_obstacle(tmp_path, monkeypatch):
  given = str(tmp_path / 'run'), resolve(), {'clients': 3}, 5, ['train.py']

  class KilledError(BaseException):
    pass

  def half(path, unused_value):
    pathlib.Path(path).write_text('{')
    raise KilledError

  with monkeypatch.context() as patch:
    patch.setattr(run_folder.files, 'write_json', half)
    patch.setattr(run_folder.os, 'unlink', lambda path: None)  # Nobody tidies up.
    with pytest.raises(KilledError):
      run_folder.open_config(*given)
  assert [name[0] for name in os.listdir(given[0])] == ['.']
  config = run_folder.open_config(*given)
  assert run_folder.read_config(*given[:2]) == config


def test_folders_that_cannot_be_used_are_refused_and_not_made(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('x')
  with pytest.raises(ValueError, match='is not a folder'):
    run_folder.check_writable(str(tmp_path / 'file' / 'run'))
  monkeypatch.setattr('os.access', lambda path, mode: False)  # root may write anywhere.
  with pytest.raises(ValueError, match='cannot be written to'):
    run_folder.check_writable(str(tmp_path / 'run'))
  with pytest.raises(ValueError, match=r'not empty and holds no config\.json'):
    run_folder.read_config(str(tmp_path), resolve())
  for content in ('{', '[]', '{}', '{"settings": 3}'):
    (tmp_path / 'config.json').write_text(content)
    with pytest.raises(ValueError, match='cannot be read'):
      run_folder.read_config(str(tmp_path), resolve())
  (tmp_path / 'summary.json').write_text('[]')
  assert not run_folder.is_complete(str(tmp_path), 1)


def test_help_teaches_and_imports_no_tensorflow():
  began = time.monotonic()
  code = (
    'import sys; from scripts import train; code = train.main(["train.py", "--help"]);'
    ' sys.exit(code or "tensorflow" in sys.modules)'
  )
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  assert time.monotonic() - began < 3  # 0.2 s where nothing else runs.
  for name in (*catalog.names(), *names.ALGORITHMS, *flags.NAMES, 'Examples'):
    assert name in done.stdout
  assert max(map(len, done.stdout.splitlines())) <= 100
