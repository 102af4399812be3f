"""The modules in which mistakes are made, and the tests that should notice."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Target:
  """A module and the tests that should notice its mistakes, the likeliest first.

  Attributes:
    path: The module.
    tests: Files or names of tests.
    select: Which of them, as pytest's -k has it; all if empty.
  """

  path: str
  tests: tuple[str, ...]
  select: str = ''


def _target(path: str, *more_tests: str, select: str = '') -> tuple[str, Target]:
  """Returns a module's short name, and the module with the tests next to it and `more_tests`."""
  name = os.path.basename(path)
  own = f'tests/{path}/{name}_test.py'.replace(f'/{name}/', '/')
  short = '_'.join(path.split('/')[-2:]) if name == 'base' else name
  return short, Target(f'{path}.py', (*([own] if os.path.exists(own) else []), *more_tests), select)


_ORACLE = 'tests/integration/corrections_oracle_test.py'
_FROZEN = 'tests/tff_adaptive/corrections/base_test.py::test_a_correction_does_not_change'
_REGISTERED = 'tests/tff_adaptive/algorithms/registered_test.py'
_LOCAL = 'tests/tff_adaptive/client/local_training_test.py'
_STORE = 'tests/tff_adaptive/runs/state_store_test.py'
_STATE_FILE = 'tests/tff_adaptive/runs/state_file_test.py'
_SHARDED = 'tests/tff_adaptive/runs/sharded_store_test.py'
_ADAPTIVE = 'tests/tff_adaptive/optimizers/adaptive_test.py'
TARGETS = dict(
  (
    _target('tff_adaptive/schedules'),
    _target('tasks/data/partition'),
    _target('tff_adaptive/optimizers/base', _ADAPTIVE),
    _target('tff_adaptive/optimizers/adaptive'),
    _target('tff_adaptive/runs/metrics_log'),
    _target('tff_adaptive/runs/state_store', _STATE_FILE),
    _target('tff_adaptive/runs/state_file', _STORE),
    _target('tff_adaptive/runs/serialization', _STATE_FILE, _STORE),
    _target('tff_adaptive/runs/state_database', _STATE_FILE),
    _target('tff_adaptive/runs/sharded_store'),
    _target('tff_adaptive/runs/state_shards', _SHARDED),
    _target('tff_adaptive/runs/staged_states', _SHARDED),
    _target('tff_adaptive/corrections/base', _REGISTERED, _ORACLE, select='base or scaffold'),
    _target('tff_adaptive/corrections/ada_best', _FROZEN, _ORACLE, select='ada_best'),
    _target('tff_adaptive/corrections/fed_dyn', _FROZEN, _ORACLE, select='fed_dyn'),
    _target('tff_adaptive/corrections/fed_prox', _FROZEN, _ORACLE, select='fed_prox'),
    _target('tff_adaptive/corrections/scaffold', _FROZEN, _ORACLE, select='scaffold'),
    _target('tff_adaptive/corrections/results'),
    _target('tff_adaptive/client/whole_client'),
    _target('tff_adaptive/client/batching'),
    _target('tff_adaptive/client/batch_sources', _LOCAL),
    _target('tff_adaptive/client/model_adapters', _LOCAL),
    _target(
      'tff_adaptive/client/local_training', _ORACLE, select='local_training_test or fed_prox'
    ),
  )
)
