"""What an environment lacks is said in one line, before anything half works."""

import collections
import importlib.util
import os
import pathlib
import subprocess
import sys
import types

import pytest

from tff_adaptive._utils import lazy_names
from tff_adaptive.environment import check

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def without(monkeypatch):
  """Makes packages seem not to be installed."""
  real = importlib.util.find_spec

  def hide(*names):
    def find_spec(name, package=None):
      if name in names:
        return None
      return real(name, package)

    monkeypatch.setattr(importlib.util, 'find_spec', find_spec)

  return hide


def test_a_missing_package_is_named_with_the_commands_that_install_it(without):
  assert check.missing_packages() == ''
  without('tf_keras', 'tensorflow_federated')
  said = check.missing_packages()
  assert f'{sys.executable} has no tensorflow_federated: ' in said
  for command in ('make env', 'python3 -m venv NAME', 'pip install WHEEL', check.INSTALLER):
    assert command in said
  assert '\n' not in said


def test_errors_of_imports_say_what_to_do_if_it_is_about_the_environment():
  missing = ModuleNotFoundError("No module named 'jax.lib'", name='jax.lib')
  removed = AttributeError('jax.lib.xla_client.XlaComputation was removed in JAX v0.6.0')
  for error in (missing, removed):
    explained = check.explained(error)
    assert isinstance(explained, ImportError)
    assert str(explained).startswith(str(error))
    assert check.INSTALLER in str(explained)
  for error in (
    ModuleNotFoundError("No module named 'own'", name='own'),
    AttributeError("module 'tff_adaptive' has no attribute 'build_jax'"),
  ):
    assert check.explained(error) is error


def test_a_package_of_this_project_explains_what_its_import_lacks(tmp_path, monkeypatch):
  (tmp_path / 'lazy_pack').mkdir()
  (tmp_path / 'lazy_pack' / '__init__.pyi').write_text('from .inner import name as name\n')
  (tmp_path / 'lazy_pack' / '__init__.py').write_text(
    'from tff_adaptive._utils import lazy_names\n'
    '__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)\n'
  )
  inner = tmp_path / 'lazy_pack' / 'inner.py'
  inner.write_text("raise ModuleNotFoundError('No module named vizier', name='vizier')\n")
  monkeypatch.syspath_prepend(str(tmp_path))
  import lazy_pack

  with pytest.raises(ImportError, match=check.INSTALLER):
    _ = lazy_pack.name
  with pytest.raises(AttributeError, match='no_such_name'):
    _ = lazy_pack.no_such_name


def test_without_any_package_the_project_is_imported_and_says_what_to_do(without):
  without('lazy_loader')
  load, _, names = lazy_names.attach('tff_adaptive', '')
  assert names == []
  with pytest.raises(ImportError, match='has no lazy_loader: run make env'):
    load('build_fed_yogi')
  with pytest.raises(AttributeError):
    load('__path__')
  # A Python without site-packages, which has not even lazy_loader.
  program = 'import tff_adaptive; print(tff_adaptive.__version__); tff_adaptive.build_fed_yogi'
  done = subprocess.run(
    [sys.executable, '-S', '-c', program], cwd=ROOT, env={}, capture_output=True, text=True
  )
  assert done.stdout.count('.') == 2
  assert 'has no lazy_loader: run make env' in done.stderr.splitlines()[-1]


def test_the_native_context_is_refused_where_its_worker_cannot_run(tmp_path, monkeypatch):
  worker = tmp_path / 'data' / check.WORKER
  worker.parent.mkdir()
  worker.write_text('a text')
  worker.chmod(0o644)
  package = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name, package_name=None: package)
  monkeypatch.setattr(check.platform, 'system', lambda: 'Darwin')
  monkeypatch.setattr(check.platform, 'machine', lambda: 'arm64')
  said = check.native_problem()
  assert 'for Linux on x86-64' in said
  assert '(Darwin on arm64)' in said
  assert '\n' not in said
  worker.chmod(0o755)
  assert check.native_problem() == ''


def test_the_engine_and_the_command_refuse_it_too(monkeypatch):
  from tests.helpers import settings
  from tff_adaptive import engine

  monkeypatch.setattr(check, 'native_problem', lambda: 'no worker here: take the graph engine')
  with pytest.raises(RuntimeError, match=r'no worker here: take the graph .*set_graph_context'):
    engine.set_native_context()
  with pytest.raises(ValueError, match=r'--engine=native: no worker here.*--engine=graph'):
    settings.of('--engine=native')


def test_keras_3_is_refused_as_tf_keras(monkeypatch):
  import tensorflow as tf

  check.require_keras_2()
  monkeypatch.setattr(tf, 'keras', types.SimpleNamespace(__version__='3.15.1'))
  with pytest.raises(RuntimeError, match=r'Keras 3\.15\.1.*TF_USE_LEGACY_KERAS=1') as error:
    check.require_keras_2()
  assert '\n' not in str(error.value)


def keras_3_model():
  import keras

  assert keras.__version__.startswith('3.')
  return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])


def test_a_keras_3_model_is_refused_with_how_to_make_it(monkeypatch):
  import tensorflow as tf

  from tff_adaptive import models

  check.require_keras_2_model(tf.keras.Sequential([tf.keras.layers.Dense(1)]))
  check.require_keras_2_model('no model')
  with pytest.raises(TypeError, match=r'Keras 3.*import tf_keras as keras'):
    check.require_keras_2_model(keras_3_model())
  with pytest.raises(TypeError, match=r'Keras 3.*import tf_keras as keras'):
    models.from_keras(keras_3_model, 'sparse_categorical_crossentropy')

  # The model function of a TFF program, and two ways to write it that do not work with Keras 2.
  import tensorflow_federated as tff

  import tff_adaptive

  spec = collections.OrderedDict(x=tf.TensorSpec([None, 4]), y=tf.TensorSpec([None], tf.int32))

  def model_fn():
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    return tff.learning.models.from_keras_model(keras_3_model(), loss=loss, input_spec=spec)

  for model in (model_fn, keras_3_model, keras_3_model()):
    with pytest.raises(TypeError, match=r'Keras 3.*import tf_keras as keras') as error:
      tff_adaptive.build_fed_avg(model, client_learning_rate=0.1)
    assert '\n' not in str(error.value)

  def broken_model_fn():
    raise TypeError('of the user')

  with pytest.raises(TypeError, match=r'^of the user$'):
    tff_adaptive.build_fed_avg(broken_model_fn, client_learning_rate=0.1)


def test_in_this_environment_tensorflow_takes_keras_2_whoever_imports_it_first():
  variables = {k: v for k, v in os.environ.items() if k != 'TF_USE_LEGACY_KERAS'}
  program = 'import os; print(os.environ.get("TF_USE_LEGACY_KERAS"))'
  done = subprocess.run(
    [sys.executable, '-c', program], env=variables, capture_output=True, text=True, check=True
  )
  assert done.stdout == '1\n'
