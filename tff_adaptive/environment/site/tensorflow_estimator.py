"""Stands in for the package tensorflow-estimator, which TensorFlow has not had since 2.16.

tensorflow-privacy 0.9.0 imports names and base classes from it for its estimators, and TensorFlow
Federated imports tensorflow-privacy. Nothing of an estimator works here: its use raises an error.
"""

import sys
import types


class _Module(types.ModuleType):
  """A module whose capitalized names are classes, and whose other names are modules."""

  def __getattr__(self, name: str) -> object:
    if name.startswith('__'):
      raise AttributeError(name)
    full_name = f'{self.__name__}.{name}'
    if name.lstrip('_')[:1].isupper():
      return type(name, (), {'__init__': _refuse, '__module__': self.__name__})
    return _Module(full_name)


def _refuse(self: object, *unused_args: object, **unused_options: object) -> None:
  raise NotImplementedError(
    f'{type(self).__name__}: TensorFlow has no estimators since 2.16, and this tensorflow_estimator'
    ' only lets tensorflow-privacy be imported: use a Keras model instead.'
  )


_MODULES = (
  'python',
  'python.estimator',
  'python.estimator.canned',
  'python.estimator.export',
  'python.estimator.head',
  'python.estimator.mode_keys',
)
for _name in _MODULES:
  sys.modules[f'{__name__}.{_name}'] = _Module(f'{__name__}.{_name}')
