"""The rules of the house: who imports whom, where tests lie, how files are written."""

import ast
import collections
import functools
import graphlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Collection, Iterator

import pytest

from tests.helpers import size

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ('tff_adaptive', 'tasks', 'scripts', 'research')
# What a folder is imported as.
NAMES = {'tasks': 'tff_adaptive_tasks', 'scripts': 'tff_adaptive_scripts'}

# Room of tff_adaptive: the rooms that it may import. Rooms stand below those that import them.
# Personalization trains as a client does, uncorrected; evaluation by client fills processors.
# Aggregators by name are made for the builders, which take any factory: they know no algorithm.
# To a population bytes and steps are given as numbers. Of asynchrony, algorithms take the settings
# and what a client begins with, training the simulation and the store of older models.
_ARROWS = """
fitting:      training
training:     asynchrony client corrections costs devices models population reports runs _utils
aggregation:  registry _utils
algorithms:   asynchrony client corrections engine models optimizers schedules registry _utils
reports:      runs costs registry _utils
runs:         models costs registry _utils
asynchrony:   client corrections population _utils
client:       corrections optimizers models environment _utils
engine:       devices environment kernels _utils
models:       devices environment _utils
population:   _utils
costs:        registry _utils
registry:     corrections optimizers schedules _utils
optimizers:   schedules _utils
schedules:    _utils
corrections:  compression _utils
kernels:      compression _utils
compression:  _utils
devices:      _utils
_utils:       environment
environment:
"""
ARROWS = {}
for _line in _ARROWS.strip().splitlines():
  _room, _others = _line.split(':')
  ARROWS[_room] = {*_others.split()}
# The one import upwards: `fit` has the settings of the command, which stand beside its flags.
DOOR = ('tff_adaptive/fitting.py', 'tff_adaptive_scripts')
# What tasks may not know: algorithms, what they are made of, and how they are run.
NOT_FOR_TASKS = {'algorithms', 'corrections', 'optimizers', 'schedules', 'registry', 'engine'}
# What scripts may load before TensorFlow, and so imports neither TensorFlow nor TFF.
PURE_MODULES = """
tff_adaptive.aggregation.accounting tff_adaptive.aggregation.table tff_adaptive.costs
tff_adaptive.asynchrony.older_models tff_adaptive.asynchrony.settings
tff_adaptive.asynchrony.simulation tff_adaptive.population.files tff_adaptive.population.rounds
tff_adaptive.registry tff_adaptive.schedules
tff_adaptive.training.protocols tff_adaptive.training.initial_weights
tff_adaptive._utils.atomic_files tff_adaptive._utils.client_references
tff_adaptive._utils.validation tff_adaptive.environment.check tff_adaptive.environment.install
tff_adaptive_tasks.catalog tff_adaptive_tasks.data.partition tff_adaptive_tasks.preparation
tff_adaptive_tasks.partition tff_adaptive_tasks.summary tff_adaptive_tasks.text_preparation
scripts.bench scripts.export scripts.report scripts.sweep scripts.train
"""
MOST_LINES = 450
# How often a package may pack several things into one statement, for each 1,000 lines.
MOST_PACKED = {'pairs': 1.0, 'walrus': 0.2, 'nested': 0.3, 'conditional': 4.0}
NO_NAMES = {'found', 'own', 'made', 'kept', 'shown', 'chosen'}  # They do not say what a thing is.
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# An option of a command line, and those of other programs that the library runs or names.
OPTION = re.compile(r'(?<![\w-])--[a-z][a-z_-]+')
OPTIONS_OF_OTHERS = {'--query-gpu', '--format', '--head', '--version', '--add'}
# What stays when its process is killed, and the modules that remove it at the next call.
TEMPORARY = re.compile(
  r'\b(mkdtemp|mkstemp|mktemp|TemporaryDirectory|NamedTemporaryFile|SpooledTemporaryFile)\b'
)
OWNERS_OF_TEMPORARY = {
  'tff_adaptive/_utils/temporary_folders.py',
  'tff_adaptive/_utils/atomic_files.py',
  'tff_adaptive/engine/cluster/joining.py',  # Its watchdog outlives the process and removes it.
}
COMMANDS = ('tff_adaptive/environment/install.py',)  # A command line of its own, which calls pip.


def sources(folder: str) -> list[pathlib.Path]:
  """The Python files of a folder, as paths from the root."""
  return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob('*.py'))


def offenders(complaints: dict[str, Collection[str]]) -> dict[str, Collection[str]]:
  """What there is to complain of, by file."""
  return {path: what for path, what in complaints.items() if what}


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
  return ast.parse((ROOT / path).read_text(encoding='utf-8'))


def imports(path: pathlib.Path) -> Iterator[str]:
  """Names of the modules that a file imports, within functions too."""
  nodes = [parsed(path)]
  while nodes:
    node = nodes.pop()
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = []
      if node.level:
        base += path.parts[: -node.level]
      if node.module:
        base.append(node.module)
      yield from ('.'.join([*base, alias.name]) for alias in node.names)
    else:
      nodes.extend(ast.iter_child_nodes(node))


def packages_imported(path: pathlib.Path) -> set[str]:
  return {module.split('.')[0] for module in imports(path)}


def rooms_imported(path: pathlib.Path) -> set[str]:
  """The rooms of tff_adaptive that a file imports, its own left out."""
  rooms = {m.split('.')[1] for m in imports(path) if m.startswith('tff_adaptive.')}
  if path.parts[0] == 'tff_adaptive':
    rooms.discard(path.parts[1].removesuffix('.py'))
  return rooms & set(ARROWS)


def test_there_is_no_circle_among_the_allowed_arrows():
  order = list(ARROWS)
  for name, targets in ARROWS.items():
    assert all(order.index(target) > order.index(name) for target in targets), name


def test_every_room_has_its_arrows():
  rooms = {path.parts[1].removesuffix('.py') for path in sources('tff_adaptive')}
  assert rooms - {'__init__', '_version'} == set(ARROWS)


def test_imports_within_the_library_run_downwards():
  wrong = {
    str(path): rooms_imported(path) - ARROWS.get(path.parts[1].removesuffix('.py'), set())
    for path in sources('tff_adaptive')
    if path.parts[1] != '__init__.py'
  }
  assert offenders(wrong) == {}


def test_imports_run_from_research_to_scripts_to_tasks_to_the_library():
  wrong = {}
  for i, package in enumerate(PACKAGES):
    above = {*PACKAGES[i + 1 :], *(NAMES.get(name, name) for name in PACKAGES[i + 1 :])}
    if package != 'research':  # The runner of TFF's own tests compares results as our tests do.
      above.add('tests')
    for path in sources(package):
      upwards = [m for m in imports(path) if m.split('.')[0] in above]
      wrong[str(path)] = [m for m in upwards if (str(path), m.split('.')[0]) != DOOR]
  assert offenders(wrong) == {}


def test_there_is_no_circle_among_the_modules_of_the_commands():
  modules = {str(path.with_suffix('')).replace('/', '.'): path for path in sources('scripts')}
  graph = {}
  for name, path in modules.items():
    imported = {*imports(path), *(module.rpartition('.')[0] for module in imports(path))}
    graph[name] = imported & set(modules)
  assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(modules)


def test_the_oracle_knows_numpy_alone_and_is_known_by_research_and_tests():
  allowed = {*sys.stdlib_module_names, 'numpy', 'oracle'}
  wrong = {str(path): packages_imported(path) - allowed for path in sources('oracle')}
  for package in set(PACKAGES) - {'research'}:
    for path in sources(package):
      wrong[str(path)] = packages_imported(path) & {'oracle'}
  assert offenders(wrong) == {}


def test_tasks_know_no_algorithm():
  assert offenders({str(p): rooms_imported(p) & NOT_FOR_TASKS for p in sources('tasks')}) == {}


def test_importing_packages_and_pure_modules_loads_neither_tensorflow_nor_tff():
  packages = []
  for folder in PACKAGES:
    for path in sources(folder):
      if path.name == '__init__.py':
        packages.append('.'.join([NAMES.get(folder, folder), *path.parent.parts[1:]]))
  assert len(packages) > 12
  program = (
    'import importlib, sys\n'
    f'for name in {[*packages, *PURE_MODULES.split()]!r}:\n'
    '  importlib.import_module(name)\n'
    '  heavy = {"tensorflow", "tensorflow_federated", "ray"} & set(sys.modules)\n'
    '  assert not heavy, (name, heavy)\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert result.returncode == 0, result.stderr[-1000:]


def test_a_test_mirrors_a_module_or_crosses_modules():
  """x_test.py is for the module x, or for a public name x of the package itself."""
  wrong = []
  for path in sources('tests'):
    name = path.name.removesuffix('_test.py')
    package = ROOT.joinpath(*path.parts[1:-1])
    if path.name == name or path.parts[1] in ('integration', 'faults'):
      continue
    stub = package / '__init__.pyi'
    is_public = stub.exists() and f' as {name}' in stub.read_text(encoding='utf-8')
    if not (package / f'{name}.py').exists() and not is_public:
      wrong.append(str(path))
  assert wrong == []


def test_no_file_is_too_long():
  lines = {}
  for folder in (*PACKAGES, 'oracle', 'tests'):
    for path in sources(folder):
      lines[str(path)] = size.count(ROOT / path)
  assert {path: n for path, n in lines.items() if n > MOST_LINES} == {}


def packing(node: ast.AST) -> str:
  """What a node packs: a key of `MOST_PACKED`, a name of `NO_NAMES`, or '' for nothing."""
  if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
    return 'pairs' if isinstance(node.targets[0], ast.Tuple) else ''
  if isinstance(node, COMPREHENSIONS):
    inner = [x for x in ast.walk(node) if isinstance(x, COMPREHENSIONS)]
    return 'nested' if len(inner) > 1 or len(node.generators) > 1 else ''
  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NO_NAMES:
    return node.id
  return {ast.NamedExpr: 'walrus', ast.IfExp: 'conditional'}.get(type(node), '')


@pytest.mark.parametrize('package', [*PACKAGES, 'oracle', 'docs/tools', 'tests'])
def test_a_statement_does_one_thing_and_names_say_what_a_thing_is(package):
  places: dict[str, list[str]] = collections.defaultdict(list)
  for path in sources(package):
    for node in ast.walk(parsed(path)):
      kind = packing(node)
      if kind:
        places[kind].append(f'{path}:{node.lineno}')
  assert {name: places[name] for name in NO_NAMES if places[name]} == {}
  thousands = sum(size.count(ROOT / path) for path in sources(package)) / 1000
  for kind, most in MOST_PACKED.items():
    assert len(places[kind]) <= most * thousands, places[kind]


def strings(path: pathlib.Path) -> Iterator[str]:
  """The strings of a file, parts of f-strings too, without its docstrings."""
  documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
  docstrings = set()
  for node in ast.walk(parsed(path)):
    if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
      docstrings.add(node.body[0].value)
  for node in ast.walk(parsed(path)):
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
      yield node.value


def test_the_library_does_not_speak_the_command_line():
  wrong = {}
  for path in sources('tff_adaptive'):
    if str(path) not in COMMANDS:
      options = OPTION.findall('\n'.join(strings(path)))
      wrong[str(path)] = {*options} - OPTIONS_OF_OTHERS
  assert offenders(wrong) == {}


def test_temporary_files_are_made_where_those_of_killed_processes_are_removed():
  users = set()
  for package in PACKAGES:
    for path in sources(package):
      if TEMPORARY.search((ROOT / path).read_text(encoding='utf-8')):
        users.add(str(path))
  assert users == OWNERS_OF_TEMPORARY
