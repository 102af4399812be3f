"""The Python examples of README.md and of the guide run; the README states facts."""

import pathlib
import pickle
import re
import types
import typing
from collections.abc import Mapping

import numpy as np
import pytest
import yaml

import oracle
import tff_adaptive
import tff_adaptive_tasks as tasks
from oracle import methods, newer, personal
from tests.helpers import small_problem
from tff_adaptive import algorithms, client, engine, population, registry

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / 'README.md'
GUIDE = ROOT / 'docs' / 'guide'
VISITS = 'hospital,age,smoker,outcome\n' + ''.join(
  f'{i % 8},{20 + 3 * i % 70},{"yes" if i % 3 else "no"},{"poor" if i % 5 > 2 else "good"}\n'
  for i in range(200)
)
HEAD = np.concatenate([np.full(size, i >= 2) for i, size in enumerate(oracle.SIZES)])


def run_blocks(page: pathlib.Path, expected: int) -> dict:
  """Runs a Markdown page's Python blocks, `expected` in number, in turn; returns the variables."""
  blocks = re.findall(r'```python\n(.*?)```', page.read_text(encoding='utf-8'), re.DOTALL)
  assert len(blocks) == expected
  scope = {'__name__': f'examples_of_{page.stem}'}
  with engine.graph_context():
    # The examples set the engine as the default; here it stays inside this block.
    for block in blocks:
      exec(block.replace('tff_adaptive.set_graph_context()', ''), scope)
  return scope


def train_loss(metrics) -> float:
  return float(metrics['client_work']['train']['loss'])


def test_the_readmes_example(capsys):
  run_blocks(README, 1)
  assert float(capsys.readouterr().out) > 0.9


def test_a_tff_program():
  scope = run_blocks(GUIDE / 'tff_program.md', 3)
  assert np.isfinite(train_loss(scope['metrics']))
  assert len(scope['client_states']) == len(scope['clients'])


@pytest.mark.exhaustive
def test_fit(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  scope = run_blocks(GUIDE / 'getting_started.md', 1)
  assert scope['result'].summary['last']['validation_accuracy'] > 0.9
  (tmp_path / 'visits.csv').write_text(VISITS)
  scope = run_blocks(GUIDE / 'own_data.md', 2)
  assert scope['of_arrays'].task.preparation.classes == (False, True)


def test_a_task_of_ones_own(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # It writes a run's folder.
  scope = run_blocks(GUIDE / 'tasks.md', 2)
  task = scope['my_task'](scope['data']['x'], scope['data']['y'], {'a': [0, 1, 2], 'b': [3]})
  assert task.train.client_ids == ['a', 'b']
  assert task.train.num_examples('a') == 3
  assert scope['result'].is_complete
  assert (tmp_path / 'runs' / 'my_task' / 'summary.json').exists()


class GuideFile(typing.NamedTuple):
  """A file of a page of the guide, the oracle's class, and what clients send."""

  number: int
  name: str
  kind: type
  values: dict
  clients_per_step: int = 3
  up: float = 1.0
  oracle_options: Mapping = types.MappingProxyType({})


@pytest.mark.parametrize(
  'file',
  [
    GuideFile(
      number=0, name='fed_cm', kind=methods.FedCM, values={'alpha': 0.3}, clients_per_step=3, up=2
    ),
    GuideFile(
      number=1,
      name='fed_nova',
      kind=methods.FedNova,
      values={'rho': 0.5},
      clients_per_step=1,
      up=1 + 1 / 39,
    ),
    GuideFile(
      number=2,
      name='fed_exp',
      kind=methods.FedExP,
      values={'eps': 0.01},
      clients_per_step=1,
      up=1 + 1 / 39,
    ),
  ],
)
@pytest.mark.sample(1)
def test_the_guides_files_follow_the_papers(tmp_path, file):
  pages = (GUIDE / f'own_algorithms{more}.md' for more in ('', '_more'))
  texts = [re.findall(r'```python\n(.*?)```', page.read_text('utf-8'), re.DOTALL) for page in pages]
  text = [*texts[0][:1], *texts[1]][file.number]
  assert text.count('\n') <= 40
  (tmp_path / 'mine.py').write_text(text)
  spec = f'{tmp_path}/mine.py:' + re.search(r'class (\w+)', text)[1]
  assert registry.algorithm(spec).name == f'my_{file.name}'
  assert algorithms.counts(spec, small_problem.model()).up == pytest.approx(file.up)
  process = algorithms.build_process(
    spec,
    small_problem.model(),
    values=file.values,
    client_learning_rate=0.2,
    client_weighting='examples',
    training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(4, shuffle=False)),
  )
  how = dict(server=oracle.Sgd(1.0), eta_l=lambda t: 0.2, batch_size=4, by_examples=True)
  for key, value in file.values.items():
    how['local_momentum' if key == 'rho' else key] = value
  expected = file.kind(small_problem.theta_0(), small_problem.clients(), **how)
  with engine.graph_context(clients_per_step=file.clients_per_step):
    run = small_problem.Run(process, small_problem.clients())
    for cohort in ([0, 1, 4], [0, 5, 4]):
      run.round(cohort)
      expected.round(cohort)
  np.testing.assert_allclose(run.theta, expected.theta, atol=2e-6)
  if file.name == 'fed_exp':
    np.testing.assert_allclose(run.theta_bar, expected.theta_bar, atol=2e-6)


@pytest.mark.parametrize(
  'file',
  [
    GuideFile(
      number=0,
      name='fed_rep',
      kind=personal.Kept,
      values={'head_share': 0.4},
      oracle_options={'mask': HEAD},
    ),
    GuideFile(
      number=1,
      name='moon',
      kind=newer.Moon,
      values={'mu': 0.5, 'temperature': 0.4},
    ),
  ],
)
@pytest.mark.sample(1)
def test_the_guides_files_with_models_of_clients_follow_the_papers(tmp_path, file):
  page = (GUIDE / 'personal_models.md').read_text('utf-8')
  text = re.findall(r'```python\n(.*?)```', page, re.DOTALL)[file.number]
  assert text.count('\n') <= 40
  (tmp_path / 'mine.py').write_text(text)
  spec = f'{tmp_path}/mine.py:' + re.search(r'class (\w+)', text)[1]
  assert registry.algorithm(spec).name == f'my_{file.name}'
  process = algorithms.build_process(
    spec,
    small_problem.model_with_features(),
    values=file.values,
    client_learning_rate=0.2,
    training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(4, shuffle=False)),
  )
  how = dict(server=oracle.Sgd(1.0), eta_l=lambda t: 0.2, batch_size=4, **file.oracle_options)
  for key, value in file.values.items():
    how['contrast' if key == 'mu' else key] = value
  expected = file.kind(small_problem.theta_0(), small_problem.clients(), **how)
  with engine.graph_context(clients_per_step=file.clients_per_step):
    run = small_problem.Run(process, small_problem.clients())
    for cohort in ([0, 1, 4], [0, 5, 4]):
      run.round(cohort)
      expected.round(cohort)
  np.testing.assert_allclose(run.theta, expected.theta, atol=2e-6)


def test_a_state_of_the_clients():
  process = run_blocks(GUIDE / 'own_algorithms_more.md', 3)['process']
  task = tasks.load('digits')
  arrays = task.train.load(task.train.client_ids[0])
  cohort = [client.client_arrays(**arrays, client=i) for i in range(2)]
  with engine.graph_context():
    states = [process.initial_client_state] * 2
    _, states, metrics = process.next(process.initialize(), states, cohort)
  assert np.isfinite(train_loss(metrics))
  assert np.any(np.asarray(states[0]['h'][0]) != process.initial_client_state['h'][0])


def test_a_chain_of_parts():
  chain = run_blocks(GUIDE / 'chains.md', 1)['fed_gamma']
  assert [part.name for part in chain.parts] == ['scaffold', 'sam']


def test_compressors():
  scope = run_blocks(GUIDE / 'compression.md', 2)
  assert [part.name for part in scope['ef21'].parts] == ['scaffold', 'ef21', 'top_k']
  values = np.array([3.0, -0.3, 0.0, 8.0], np.float32)
  decoded = scope['Powers']().compress(values, (0, 0))
  np.testing.assert_array_equal(decoded, [2, -0.25, 0, 8])
  counts = algorithms.counts(scope['Powers'](feedback='ef14'), small_problem.model())
  assert counts.up == pytest.approx(9 / 32, abs=1 / small_problem.theta_0().size)


def test_every_algorithm_and_optimizer_has_its_formula():
  page = (GUIDE / 'formulas.md').read_text(encoding='utf-8')
  sections = re.split(r'^## ', page, flags=re.MULTILINE)[1:]
  tables = {text.partition('\n')[0]: re.findall(r'^\| `(\w+)` \|', text, re.M) for text in sections}
  assert {title: names for title, names in tables.items() if names} == {
    'Algorithms': [*registry.ALGORITHMS],
    'Server optimizers': [*registry.SERVER_OPTIMIZERS],
    'Asynchronous training': ['buffered'],
    'Client optimizers': [*registry.CLIENT_OPTIMIZERS],
  }


def test_a_population(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  devices = {1: {'computation': 20.0, 'communication': 8000.0}}
  traces = {1: {'active': [0, 90], 'inactive': [10, 5]}, 2: {'active': [3], 'inactive': [4]}}
  files = {'client_device_capacity': devices, 'client_behave_trace': traces}  # FedScale's.
  for name, content in files.items():
    pathlib.Path(name).write_bytes(pickle.dumps(content))
  scope = run_blocks(GUIDE / 'population.md', 2)
  profiles = population.read_profiles('profiles.csv')
  expected = {'seconds_per_step': 1.2, 'downlink': 1.024, 'uplink': 1.024}
  assert {name: profile['07'] for name, profile in profiles.items()} == expected
  trace = population.read_trace('availability.csv')
  assert (trace['00'], trace['59']) == ([(0, 10)], [(3, 4)])
  assert scope['config'].population.limits_steps
  assert scope['config'].population.availability.unit == 'hours'


def test_asynchronous_training():
  config = run_blocks(GUIDE / 'asynchronous.md', 1)['config']
  assert (config.clients_per_round, config.asynchrony.concurrency) == (5, 20)


def test_partitions_of_any_arrays():
  scope = run_blocks(GUIDE / 'partitions.md', 1)
  assert scope['clients'].load_all()['y'].shape == (600,)
  assert len(scope['skewed'].train) == 20


@pytest.fixture(scope='module')
def own_models():
  return run_blocks(GUIDE / 'own_models.md', 2)


def test_texts_become_numbers_by_a_layer_of_keras(own_models):
  task = own_models['text_task']
  # The words of the list in the first note, and the one that it has not.
  assert own_models['counts'][0].tolist() == [0, 1, 0, 1, 1, 0, 0, 0]
  assert own_models['new'].tolist() == [[0, 1, 0, 0, 0, 0, 1, 0]]
  assert task.preparation.classes == (False, True)
  assert len(task.train) == 5
  assert "Task 'own_data': 5 clients with 50 examples" in str(task)


def test_of_a_pretrained_model_clients_send_the_small_parts_only(own_models):
  assert own_models['base'].count_params() == 9610
  weights = own_models['result'].weights
  assert [weight.shape for weight in weights] == [(64, 2), (2, 128), (128, 2), (2, 10)]
  # Four bytes a number, ten clients, in megabytes.
  sent = own_models['result'].metrics['megabytes_up'].iloc[-1]
  assert sent == pytest.approx(660 * 4 * 10 / 1e6)
  assert own_models['result'].metrics['validation_accuracy'].iloc[-1] > 0.7


def test_metrics(capsys):
  run_blocks(GUIDE / 'metrics.md', 1)
  values, names = capsys.readouterr().out.splitlines()[-2:]
  assert "'f1':" in values
  assert 'alarms' in names


def test_no_other_page_has_examples_that_nothing_runs():
  run = {
    'tff_program',
    'tasks',
    'partitions',
    'own_models',
    'own_algorithms',
    'population',
    'asynchronous',
    'chains',
    'metrics',
  }
  run |= {'choosing_clients', 'robust_aggregation'}  # By tests/integration/user_parts_test.py.
  run |= {'own_algorithms_more', 'personal_models'}  # By test_the_guides_files_follow_the_papers.
  run |= {'compression'}
  run |= {'own_optimizers'}  # By tests/tff_adaptive/registry/optimizers_test.py.
  run |= {'getting_started'}  # By test_fit.
  run |= {'own_data', 'export'}  # By tests/scripts/export_test.py.
  run |= {'bench'}  # By tests/scripts/comparison/runs_test.py.
  pages = {page.stem for page in GUIDE.glob('*.md') if '```python' in page.read_text('utf-8')}
  assert pages == run


def test_every_public_name_is_there():
  for name in tff_adaptive.__all__:
    assert getattr(tff_adaptive, name) is not None


def test_the_version_stands_in_one_place():
  citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
  assert citation['version'] == tff_adaptive.__version__
  assert citation['license'] == 'Apache-2.0'
  assert f'## {tff_adaptive.__version__}\n' in (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
  assert tff_adaptive.__version__ not in (ROOT / 'setup.py').read_text(encoding='utf-8')
