"""Private interfaces are used in one module, which does what its functions say."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tff_adaptive._utils import private_apis

ROOT = pathlib.Path(__file__).parents[3]
MODULE = 'tff_adaptive/_utils/private_apis.py'
PRIVATE = re.compile(
  r'tensorflow\.(python|core)\b|tensorflow_federated\.\w|(?<!tf\.)keras\.(src|backend)|tff\.backends\.test'
  r'|\b_inputs\(|_as_variant_tensor|_variant_tensor\b|getrefcount|subprocess\.Popen = '
  r'|(?<!compat)\.proto\b|serialize_computation|computation_pb2|\._fn(_kwargs)?\b'
)
# What TFF documents for contexts of one's own may stand anywhere.
FRAMEWORK = re.compile(
  r'\btff\.framework\.(?!SyncContext|AsyncContext|ConcreteComputation|get_context_stack'
  r'|set_default_context)\w+'
)


def test_the_installed_versions_are_those_it_was_written_for():
  """Runs before all other tests; see `tests/conftest.py`."""
  assert private_apis.version_mismatch() is None


def test_another_version_is_named(monkeypatch):
  monkeypatch.setitem(private_apis.VERSIONS, 'tensorflow-federated', '0.88.0')
  said = private_apis.version_mismatch()
  assert '0.87.0' in said
  assert '0.88.0' in said


def uses(pattern, text):
  """The uses of private interfaces in a module, but for comments."""
  lines = [line.split('  #')[0] for line in text.splitlines() if not line.lstrip().startswith('#')]
  return [match.group() for line in lines for match in pattern.finditer(line)]


def test_no_other_module_uses_one():
  found = {}
  for path in sorted(
    p for room in ('tff_adaptive', 'tasks', 'scripts') for p in ROOT.glob(f'{room}/**/*.py')
  ):
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    found[name] = uses(PRIVATE, text) + uses(FRAMEWORK, text)
  assert len(found.pop(MODULE)) > 10  # The patterns do find them.
  assert {name: used for name, used in found.items() if used} == {}


def test_it_imports_neither_tensorflow_nor_tff():
  program = f'import sys; import {private_apis.__name__}; assert "tensorflow" not in sys.modules'
  subprocess.run([sys.executable, '-c', program], check=True, cwd=ROOT)


def test_reference_counts_grow_with_references():
  values = [np.empty(1), np.empty(1)]
  first = private_apis.reference_counts(values)
  held = values[1]
  assert private_apis.reference_counts(values) == [first[0], first[1] + 1]
  del held
  assert private_apis.reference_counts(values) == first


def test_tensors_are_freed_to_the_last_byte():
  import tensorflow as tf

  def tensors():
    made = [tf.constant(i) for i in range(1000)]
    private_apis.free_attributes(made)
    private_apis.free_attributes(made[:10])  # Again: no matter.
    assert sum(map(int, made[:10])) == 45

  tensors()
  grown = []
  for _ in range(3):  # What else this process has goes on meanwhile; a leak is there each time.
    before = sys.getallocatedblocks()
    tensors()
    grown.append(sys.getallocatedblocks() - before)
  assert min(grown) < 500


def test_attributes_of_tensors_stay():
  import tensorflow as tf

  tensors = [tf.constant(1), tf.constant(2)]
  tensors[0].named = 'one'
  private_apis.free_attributes(tensors)
  tensors[1].named = 'two'
  assert [tensor.named for tensor in tensors] == ['one', 'two']


def test_the_installed_tensorflow_is_built_for_these_libraries():
  build = private_apis.installed_build()
  assert build['is_cuda_build']
  assert (build['cuda_version'], build['cudnn_version']) == ('11.8', '8')


@pytest.mark.parametrize(
  'op, expected', [('RandomUniform', True), ('Add', False), ('no_such_op', False)]
)
def test_ops_with_state(op, expected):
  assert private_apis.is_stateful(op) is expected


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


def test_tensor_names_in_the_order_of_the_type():
  import tensorflow_federated as tff

  type_spec = [('b', np.int32), ('a', [tff.SequenceType(np.int32), np.float32])]
  comp = tff.tensorflow.computation(lambda x: x.b, tff.types.to_type(type_spec))
  message = private_apis.tensorflow_of(comp)
  names = private_apis.tensor_names(message.parameter)
  assert [is_sequence for _, is_sequence in names] == [False, True, False]
  nodes = {node.name for node in private_apis.graph_def(message).node}
  assert {name.split(':')[0] for name, _ in names} <= nodes
  assert private_apis.initialize_op(message) == ''


def test_a_computation_of_a_building_block_without_parameter():
  import tensorflow_federated as tff

  one = tff.tensorflow.computation(lambda: 1)
  call = private_apis.framework().Call(one.to_building_block())
  again = private_apis.to_computation(private_apis.framework().Lambda(None, None, call))
  assert again.type_signature.compact_representation() == '( -> int32)'


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


@pytest.mark.parametrize('intrinsic', ['federated_sum', 'federated_secure_sum_bitwidth'])
def test_secure_intrinsics_are_replaced_where_there_are_some(intrinsic):
  import tensorflow_federated as tff

  bounds = [] if intrinsic == 'federated_sum' else [8]

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def total(values):
    return getattr(tff, intrinsic)(values, *bounds)

  replaced = tff.backends.test.replace_secure_intrinsics_with_bodies(total)
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(replaced.to_building_block())
  found, expected = (
    re.findall(r'federated_\w+', of.compact_representation())
    for of in (private_apis.to_call_dominant(total), tff.framework.to_call_dominant(block))
  )
  assert found == expected == ['federated_aggregate']
