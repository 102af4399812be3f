"""Adaptive federated optimization on TensorFlow Federated.

A federated optimizer is a client correction times a server optimizer times a schedule. The names
below are the public ones; they are loaded at their first use, so that importing this package
imports neither TensorFlow nor TFF.

    import tff_adaptive

    process = tff_adaptive.build_fed_yogi(
      model_fn, client_learning_rate=0.03, server_learning_rate=0.003)

See README.md for a tour.
"""

import importlib
from typing import Any

__version__ = '0.1.0'

_ALGORITHMS = (
  'build_ada_best',
  'build_drift_corrected',
  'build_fed_adagrad',
  'build_fed_adam',
  'build_fed_avg',
  'build_fed_avgm',
  'build_fed_dyn',
  'build_fed_opt',
  'build_fed_prox',
  'build_fed_yogi',
  'build_scaffold',
  'build_scaffold_m',
)
_HOME = {
  **dict.fromkeys(_ALGORITHMS, 'tff_adaptive.algorithms'),
  'Batching': 'tff_adaptive.batching',
  'Model': 'tff_adaptive.models',
  'graph_context': 'tff_adaptive.execution',
  'set_graph_context': 'tff_adaptive.execution',
  'set_native_context': 'tff_adaptive.execution',
  'set_remote_context': 'tff_adaptive.execution',
}
_MODULES = (
  'algorithms',
  'client_states',
  'corrections',
  'costs',
  'execution',
  'models',
  'optimizers',
  'schedules',
  'training',
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
  if name in _HOME:
    return getattr(importlib.import_module(_HOME[name]), name)
  if name in _MODULES:
    return importlib.import_module(f'tff_adaptive.{name}')
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
  return sorted([*globals(), *__all__])
