"""Says in one line what an environment lacks to run TensorFlow Federated. Imports no TensorFlow."""

import importlib.util
import os
import platform
import sys
from typing import Any

INSTALLER = 'tff-adaptive-environment'
WORKER = 'worker_binary'  # The program that TFF's native context starts, in TFF's folder `data`.
_KERAS_2 = 'TF_USE_LEGACY_KERAS'
_KERAS_3_MODEL = (
  'the model is made with Keras 3 (the package keras), and TensorFlow Federated needs Keras 2:'
  " make it with tf.keras, or 'import tf_keras as keras' in place of 'import keras'."
)
# The packages whose absence, or wrong version, the installer puts right.
_NEEDED = (
  'lazy_loader',
  'dp_accounting',
  'jax',
  'setuptools',  # It brings distutils, which tensorflow-probability imports.
  'tensorflow',
  'tensorflow_estimator',
  'tensorflow_federated',
  'tensorflow_model_optimization',
  'tensorflow_privacy',
  'tensorflow_probability',
  'tf_keras',
  'tree',
  'vizier',
)
MODEL_FROM_OUTSIDE = (
  'the model function returns a model that was made outside of it, whose weights all clients would'
  ' share: make it in the function; to begin from its weights read them before, values ='
  ' model.get_weights(), and call set_weights(values) on the new one'
)
_WEIGHTS_FROM_OUTSIDE = (
  'the model function reads the weights of a model that was made outside of it, which it cannot in'
  ' the graph in which it is called: read them before, values = model.get_weights(), and call'
  ' set_weights(values) in it'
)
# Parts of Keras' messages for this.
_READ_IN_A_GRAPH = ('_compile_time_distribution_strategy', 'Argument `fetch`')


def missing_packages() -> str:
  """Returns one line if this environment was not made for TFF, and '' if it was."""
  missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
  if not missing:
    return ''
  return f'{sys.executable} has no {missing[0]}: {remedy()}'


def remedy() -> str:
  """Returns what to do in an environment that lacks packages."""
  return (
    'run make env in a checkout, or, in a virtual environment of CPython 3.10 to 3.13 in which the'
    f' wheel is installed (python3 -m venv NAME, NAME/bin/pip install WHEEL), NAME/bin/{INSTALLER}'
  )


def native_problem() -> str:
  """Returns one line if the program of TFF's native context is not there to run, and '' if it is.

  TFF is published with this program, its worker, for Linux on x86-64. Elsewhere `install` leaves a
  file that cannot be run in its place.
  """
  package = importlib.util.find_spec('tensorflow_federated')
  roots: list[str] = []
  if package is not None:
    roots += package.submodule_search_locations or ()
  if any(os.access(os.path.join(root, 'data', WORKER), os.X_OK) for root in roots):
    return ''
  return (
    "TensorFlow Federated's native context needs its worker, a program for Linux on x86-64 that"
    f' cannot run here ({platform.system()} on {platform.machine()}): take the graph engine'
  )


def explained(error: ImportError | AttributeError) -> ImportError | AttributeError:
  """Returns the error with the remedy in its message if TFF, or what it imports, is not usable.

  Other errors are returned as they are. A JAX that is too new says what was removed in which
  version, in an AttributeError.
  """
  missing = ''
  if isinstance(error, ImportError) and error.name:
    missing = error.name.split('.')[0]
  if missing in _NEEDED or 'removed in JAX' in str(error):
    return ImportError(f'{error}: {remedy()}.', name=missing or 'jax')
  return error


def require_keras_2() -> None:
  """Raises RuntimeError if TensorFlow's Keras is Keras 3, of which TFF can train no model."""
  import tensorflow as tf

  version = getattr(tf.keras, '__version__', '2')  # Keras 2's namespace has no version.
  if version.startswith('2'):
    return
  raise RuntimeError(
    f'tf.keras is Keras {version}, and TensorFlow Federated needs Keras 2: install tf-keras and set'
    f' {_KERAS_2}=1 before TensorFlow is imported, or run {INSTALLER} once, which does both in this'
    ' environment.'
  )


def require_keras_2_model(model: Any) -> None:
  """Raises TypeError if `model` is a model of Keras 3."""
  # A class of the user's stands in a module of the user's, so its base classes count too.
  modules = [kind.__module__.split('.')[0] for kind in type(model).__mro__]
  if 'keras' in modules and 'tf_keras' not in modules:
    raise TypeError(_KERAS_3_MODEL)


def explained_model_error(error: Exception) -> Exception:
  """Returns the error of a model function, explained if it uses Keras in a way that fails there.

  These are a model of Keras 3, and reading the weights of a model from outside, which fails in a
  graph.
  """
  if 'found keras.src.' in str(error):
    return TypeError(_KERAS_3_MODEL)
  if any(words in str(error) for words in _READ_IN_A_GRAPH):
    return ValueError(_WEIGHTS_FROM_OUTSIDE)
  return error
