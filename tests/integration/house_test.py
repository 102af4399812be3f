"""The rules of the house: who imports whom, where tests lie, how long a file may be."""

import ast
import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ('tff_adaptive', 'tasks', 'scripts')
NAMES = {'tasks': 'tff_adaptive_tasks'}  # What a folder is imported as.

# Room of tff_adaptive -> the rooms that it may import. Rooms stand below those that import them.
ARROWS = {
  # Personalization trains as a client does, uncorrected; evaluation by client fills processors.
  'training': {
    *('reports', 'runs', 'client', 'corrections', 'models', 'population', 'costs', 'registry'),
    *('devices', '_utils'),
  },
  # Aggregators by name, made for the builders, which take any factory: they know no algorithm.
  'aggregation': {'registry', '_utils'},
  'algorithms': {
    *('client', 'corrections', 'engine', 'models', 'optimizers', 'schedules', 'registry'),
    '_utils',
  },
  'reports': {'runs', 'costs', 'registry', '_utils'},
  'runs': {'models', 'costs', 'registry', '_utils'},
  'client': {'corrections', 'models', '_utils'},
  'corrections': {'registry', '_utils'},
  'optimizers': {'schedules', 'registry', '_utils'},
  'engine': {'devices', 'kernels', '_utils'},
  'models': {'devices', '_utils'},
  'population': {'_utils'},  # Bytes and steps are given to it as numbers.
  'costs': {'registry', '_utils'},
  'schedules': {'registry', '_utils'},
  'registry': {'_utils'},
  'devices': {'_utils'},
  'kernels': {'_utils'},
  '_utils': set(),
}
# What tasks may not know: algorithms, what they are made of, and how they are run.
NOT_FOR_TASKS = {'algorithms', 'corrections', 'optimizers', 'schedules', 'registry', 'engine'}
# What scripts may load before TensorFlow, and so imports neither TensorFlow nor TFF.
PURE_MODULES = (
  'tff_adaptive.aggregation.accounting',
  'tff_adaptive.aggregation.table',
  'tff_adaptive.costs',
  'tff_adaptive.population.files',
  'tff_adaptive.population.rounds',
  'tff_adaptive.registry',
  'tff_adaptive.schedules',
  'tff_adaptive.training.signals',
  'tff_adaptive.runs.warm_start',
  'tff_adaptive._utils.atomic_files',
  'tff_adaptive._utils.client_references',
  'tff_adaptive._utils.validation',
  'tff_adaptive_tasks.catalog',
  'tff_adaptive_tasks.data.partition',
  'tff_adaptive_tasks.text_preparation',
  'scripts.export',
  'scripts.report',
  'scripts.sweep',
  'scripts.train',
)
MOST_LINES = 450
# Words of the project's past; the field says reported, fix or hint, worker pool, ping.
WORDS = re.compile(r'\b(?:told|mend(?:s|ed)?|crew|knock(?:s|ed)?)\b', re.IGNORECASE)
# An option of a command line, and those of other programs that the library runs or names.
OPTION = re.compile(r'(?<![\w-])--[a-z][a-z_-]+')
OPTIONS_OF_OTHERS = {'--query-gpu', '--format', '--head', '--version'}


def sources(folder: str) -> list[pathlib.Path]:
  """The Python files of a folder, as paths from the root."""
  return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob('*.py'))


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
      package = list(path.parts[: len(path.parts) - node.level]) if node.level else []
      base = '.'.join([*package, *([node.module] if node.module else [])])
      yield from (f'{base}.{alias.name}' for alias in node.names)
    else:
      nodes.extend(ast.iter_child_nodes(node))


def room(module: str) -> str:
  """'tff_adaptive.client.batching' -> 'client'."""
  return module.split('.')[1]


def rooms_imported(path: pathlib.Path) -> set[str]:
  """The rooms of tff_adaptive that a file imports, its own left out."""
  found = {room(m) for m in imports(path) if m.startswith('tff_adaptive.')}
  own = path.parts[1].removesuffix('.py') if path.parts[0] == 'tff_adaptive' else ''
  return {name for name in found if name in ARROWS} - {own}


def test_there_is_no_circle_among_the_allowed_arrows():
  order = list(ARROWS)
  for name, targets in ARROWS.items():
    assert all(order.index(target) > order.index(name) for target in targets), name


def test_every_room_has_its_arrows():
  rooms = {path.parts[1].removesuffix('.py') for path in sources('tff_adaptive')}
  assert rooms - {'__init__', '_version'} == set(ARROWS)


@pytest.mark.parametrize('path', sources('tff_adaptive'), ids=str)
def test_imports_within_the_library_run_downwards(path):
  own = path.parts[1].removesuffix('.py')
  if own in ('__init__', '_version'):
    return
  assert rooms_imported(path) <= ARROWS[own]


@pytest.mark.parametrize('path', [p for f in PACKAGES for p in sources(f)], ids=str)
def test_imports_run_from_scripts_to_tasks_to_the_library(path):
  above = [NAMES.get(name, name) for name in PACKAGES[PACKAGES.index(path.parts[0]) + 1 :]]
  assert [m for m in imports(path) if m.split('.')[0] in (*above, 'tests')] == []


@pytest.mark.parametrize('path', sources('tasks'), ids=str)
def test_tasks_know_no_algorithm(path):
  assert rooms_imported(path) & NOT_FOR_TASKS == set()


def test_importing_packages_and_pure_modules_loads_neither_tensorflow_nor_tff():
  packages = [
    '.'.join([NAMES.get(path.parts[0], path.parts[0]), *path.parent.parts[1:]])
    for folder in PACKAGES
    for path in sources(folder)
    if path.name == '__init__.py'
  ]
  assert len(packages) > 12
  program = (
    'import importlib, sys\n'
    f'for name in {[*packages, *PURE_MODULES]!r}:\n'
    '  importlib.import_module(name)\n'
    '  heavy = {"tensorflow", "tensorflow_federated", "ray"} & set(sys.modules)\n'
    '  assert not heavy, (name, heavy)\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr[-1000:]


@pytest.mark.parametrize(
  'path', [p for p in sources('tests') if p.name.endswith('_test.py')], ids=str
)
def test_a_test_mirrors_a_module_or_crosses_modules(path):
  """x_test.py is for the module x, or for a public name x of the package itself."""
  if path.parts[1] in ('integration', 'faults'):
    return
  name = path.name.removesuffix('_test.py')
  package = ROOT.joinpath(*path.parts[1:-1])
  if not (package / f'{name}.py').exists():
    stub = package / '__init__.pyi'
    assert stub.exists()
    assert f' as {name}' in stub.read_text(encoding='utf-8')


@pytest.mark.parametrize('path', [p for f in (*PACKAGES, 'tests') for p in sources(f)], ids=str)
def test_no_file_is_too_long(path):
  assert len((ROOT / path).read_text(encoding='utf-8').splitlines()) <= MOST_LINES


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


@pytest.mark.parametrize('path', sources('tff_adaptive'), ids=str)
def test_the_library_does_not_speak_the_command_line(path):
  found = {option for text in strings(path) for option in OPTION.findall(text)}
  assert found - OPTIONS_OF_OTHERS == set()


def texts() -> list[pathlib.Path]:
  """Python and Markdown files, as paths from the root; results are records and stay as they are."""
  pages = [*ROOT.glob('*.md'), *(ROOT / 'docs').glob('*.md'), *(ROOT / 'docs').glob('[!r]*/*.md')]
  code = [path for folder in (*PACKAGES, 'tests') for path in sources(folder)]
  own = pathlib.Path(__file__).relative_to(ROOT)
  return [path for path in [*code, *(p.relative_to(ROOT) for p in pages)] if path != own]


@pytest.mark.parametrize('path', texts(), ids=str)
def test_the_words_are_the_fields(path):
  assert WORDS.findall((ROOT / path).read_text(encoding='utf-8')) == []
