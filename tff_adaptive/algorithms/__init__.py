"""Federated algorithms as TFF processes."""

from tff_adaptive.algorithms.builders import (
  BUILDERS,
  build,
  build_ada_best,
  build_drift_corrected,
  build_fed_adagrad,
  build_fed_adam,
  build_fed_avg,
  build_fed_avgm,
  build_fed_dyn,
  build_fed_opt,
  build_fed_prox,
  build_fed_yogi,
  build_scaffold,
  build_scaffold_m,
  is_stateful,
)
from tff_adaptive.algorithms.stateful import ServerState, StatefulProcess

__all__ = [
  'BUILDERS',
  'ServerState',
  'StatefulProcess',
  'build',
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
  'is_stateful',
]
