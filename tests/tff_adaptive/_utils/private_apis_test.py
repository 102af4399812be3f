"""Private interfaces are used in one module, which does what its functions say."""

import ast
import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

from tff_adaptive._utils import private_apis

ROOT = pathlib.Path(__file__).parents[3]
MODULE = 'tff_adaptive/_utils/private_apis.py'
# Of namedtuples, and of `os`; documented.
DOCUMENTED = {'_replace', '_asdict', '_fields', '_make', '_exit'}
# Not documented, or not for others, though without an underscore. What TFF documents for contexts
# of one's own may stand anywhere.
PACKAGES = re.compile(
  r'(tensorflow|keras)\.(python|core|src|backend)\b|tensorflow_federated\.\w'
  r'|tff\.backends\.test\b|.*\.getrefcount$|subprocess\.Popen = '
  r'|tff\.framework\.(?!SyncContext|AsyncContext|ConcreteComputation|Ingestable|get_context_stack'
  r'|set_default_context)\w|(?!.*compat).*\.(proto|serialize_computation)$'
)


def test_the_installed_versions_are_those_it_was_written_for():
  """Runs before all other tests; see `tests/conftest.py`."""
  import tensorflow as tf  # tensorflow-cpu is the same package under another name.

  tff_version = importlib.metadata.version('tensorflow-federated')
  versions = {'tensorflow-federated': tff_version, 'tensorflow': tf.__version__}
  assert versions == private_apis.VERSIONS, (
    'try each function of private_apis with these (docs/design/tff_on_today.md), then change it'
  )


def is_private(name):
  return name.startswith('_') and not name.startswith('__')


def names_defined(tree):
  """Names that a module gives to functions, classes, variables and attributes of `self`."""
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
      yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
      yield node.attr


def is_own(attribute):
  return isinstance(attribute.value, ast.Name) and attribute.value.id in ('self', 'cls')


def names_used(node):
  """What a node of a module's syntax tree names: an import, an attribute, a key of `vars`."""
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom) and not node.level:
    return [f'{node.module}.{alias.name}' for alias in node.names]
  if isinstance(node, ast.Attribute) and not is_own(node):
    return [ast.unparse(node)]
  if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
    return [f'{ast.unparse(node.targets[0])} = ']
  if isinstance(node, ast.Call) and ast.unparse(node.func) in ('getattr', 'setattr', 'hasattr'):
    if isinstance(node.args[1], ast.Constant):
      return [node.args[1].value]
    return []
  if isinstance(node, ast.Subscript) and ast.unparse(node.value).startswith('vars('):
    if isinstance(node.slice, ast.Constant):
      return [node.slice.value]
    return []
  return []


def uses(text):
  """The uses of private interfaces of other packages in a module, but for its own names."""
  tree = ast.parse(text)
  known = DOCUMENTED | set(names_defined(tree))
  names = []
  for node in ast.walk(tree):
    for name in names_used(node):
      if name.startswith(('tff_adaptive', 'scripts')):
        continue
      is_import = isinstance(node, ast.Import | ast.ImportFrom)
      *path, last = name.split('.')
      hidden = (is_private(last) and ' ' not in last) or (is_import and any(map(is_private, path)))
      if (hidden and last not in known) or PACKAGES.match(name):
        names.append(name)
  return names


@pytest.mark.parametrize(
  'line',
  [
    'layer._callable_losses',
    'make(1)._fn',
    "getattr(layer, '_losses', ())",
    "vars(layer)['_generator'] = 1",
    'from ray._private import worker',
    'from tensorflow.python.eager import context',
    'import tensorflow_federated.python.common_libs',
    'self._query = other._query_of_theirs',
    'subprocess.Popen = Mine',
    'tff.framework.Call(a)',
    'block.proto',
  ],
)
def test_a_use_is_found(line):
  assert uses(line)
  text = 'class A:\n  def f(self, other):\n    self._x = other._x\n    return b._replace(c=1)\n'
  assert uses(text + 'from tff_adaptive._utils import private_apis\nos._exit(1)\n') == []


def test_no_other_module_uses_one():
  users = {}
  for room in ('tff_adaptive', 'tasks', 'scripts'):
    for path in sorted(ROOT.glob(f'{room}/**/*.py')):
      users[path.relative_to(ROOT).as_posix()] = uses(path.read_text())
  assert len(users.pop(MODULE)) > 10
  assert {name: used for name, used in users.items() if used} == {}


def test_a_tensor_may_be_freed_twice_and_keeps_its_attributes():
  """That nothing is left is `context_test`'s."""
  import tensorflow as tf

  plain = tf.constant(1)
  named = tf.constant(1)
  named.name_of_mine = 'one'
  for _ in range(2):
    private_apis.free_attributes([plain, named])
  assert (int(plain), named.name_of_mine) == (1, 'one')


def test_random_numbers_are_found_anywhere_in_a_dataset():
  import tensorflow as tf

  numbers = tf.data.Dataset.range(3)
  variant = tf.data.experimental.to_variant(numbers)
  for drawn in (
    numbers.shuffle(3),
    numbers.shuffle(3).batch(2).map(lambda x: x),
    numbers.concatenate(numbers.shuffle(2)),
    tf.data.Dataset.random(seed=1).take(2),
    tf.data.experimental.from_variant(variant, numbers.element_spec),  # Nobody knows.
    tf.compat.v1.data.Dataset.range(3).shuffle(3),
  ):
    assert private_apis.may_draw(drawn)
  assert not private_apis.may_draw(numbers.batch(2).repeat(2))


def test_generators_are_found_in_the_graph_of_a_dataset():
  import tensorflow as tf

  def count(dataset):
    variant = tf.data.experimental.to_variant(dataset)
    octets = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    return len(private_apis.seed_generators(tf.compat.v1.GraphDef.FromString(octets)))

  numbers = tf.data.Dataset.range(3)
  assert count(numbers.shuffle(3).concatenate(numbers.shuffle(2))) == 2
  assert count(tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True)) == 1
  assert count(numbers.cache()) == 0


def test_the_starts_of_workers_are_watched(monkeypatch):
  seen = []
  worker = ['/tff/worker_binary', '--port=1']

  class Popen:
    pid = 7

    def __init__(self, command, **options):
      seen.append((command, options))

  monkeypatch.setattr(subprocess, 'Popen', Popen)
  assert private_apis.watch_worker_starts(seen.append)
  assert not private_apis.watch_worker_starts(seen.append)
  for command in (worker, b'ls'):
    subprocess.Popen(command, cwd='/')
  assert seen == [(worker, {'cwd': '/', 'start_new_session': True}), 7, (b'ls', {'cwd': '/'})]


_ENDING = """
import gc
from tff_adaptive._utils import private_apis

def local_cpp_executor_factory():
  class ServiceManager:
    def __del__(self):
      print('signalled')
  return ServiceManager()

manager = local_cpp_executor_factory()
gc.freeze()
private_apis.forget_workers()
del manager
print('ended')
"""


def test_workers_are_forgotten_where_collections_leave_them_out():
  """In a process of its own: there are no managers of TFF's here that other tests need."""
  ended = subprocess.run(
    [sys.executable, '-c', _ENDING], check=True, capture_output=True, text=True, cwd=ROOT
  )
  assert ended.stdout == 'ended\n'
