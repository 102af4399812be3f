"""Says in one line what an environment lacks to run TensorFlow Federated. Imports no TensorFlow."""

import importlib.util
import os
import sys
from typing import Any

INSTALLER = 'tff-adaptive-environment'
_KERAS_2 = 'TF_USE_LEGACY_KERAS'
# The packages whose absence, or wrong version, the installer puts right.
_NEEDED = (
  'dp_accounting',
  'jax',
  'tensorflow',
  'tensorflow_estimator',
  'tensorflow_federated',
  'tensorflow_model_optimization',
  'tensorflow_privacy',
  'tf_keras',
  'tree',
  'vizier',
)


def missing_packages() -> str:
  """Returns one line if this environment was not made for TFF, and '' if it was."""
  missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
  if not missing:
    return ''
  return f'{sys.executable} has no {missing[0]}: {remedy()}'


def remedy() -> str:
  """Returns what to do in an environment that lacks packages."""
  return (
    f"in a virtual environment of CPython 3.10 to 3.13, run '{INSTALLER}' (in a checkout: 'make"
    " env'), which installs the packages that TensorFlow Federated runs with"
  )


def explained(error: ImportError) -> ImportError:
  """Returns an error of an import of TFF, or of what it imports, with the remedy in its message."""
  missing = (error.name or '').split('.')[0]
  if missing not in _NEEDED and 'jax' not in str(error):
    return error
  return ImportError(f'{error}: {remedy()}.', name=error.name, path=error.path)


def require_keras_2() -> None:
  """Raises RuntimeError if TensorFlow's Keras is Keras 3, of which TFF can train no model."""
  import tensorflow as tf

  version = getattr(tf.keras, '__version__', '2')  # Keras 2's namespace has no version.
  if version.startswith('2'):
    return
  raise RuntimeError(
    f'tf.keras is Keras {version}, and TensorFlow Federated needs Keras 2: set {_KERAS_2}=1 before'
    f" TensorFlow is imported, or run '{INSTALLER}' once, which sets it in this environment"
    f' ({_KERAS_2} is {os.environ.get(_KERAS_2)!r} here).'
  )


def require_keras_2_model(model: Any) -> None:
  """Raises TypeError if `model` is a model of Keras 3."""
  modules = [kind.__module__.split('.')[0] for kind in type(model).__mro__]
  if 'keras' in modules and 'tf_keras' not in modules:
    raise TypeError(
      'the model is made with Keras 3 (the package keras), and TensorFlow Federated needs Keras 2:'
      " make it with tf.keras, or 'import tf_keras as keras' in place of 'import keras'."
    )
