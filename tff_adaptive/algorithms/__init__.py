"""Federated algorithms as TFF processes."""

from tff_adaptive.algorithms.builders import BUILDERS
from tff_adaptive.algorithms.builders import build
from tff_adaptive.algorithms.builders import build_ada_best
from tff_adaptive.algorithms.builders import build_drift_corrected
from tff_adaptive.algorithms.builders import build_fed_adagrad
from tff_adaptive.algorithms.builders import build_fed_adam
from tff_adaptive.algorithms.builders import build_fed_avg
from tff_adaptive.algorithms.builders import build_fed_avgm
from tff_adaptive.algorithms.builders import build_fed_dyn
from tff_adaptive.algorithms.builders import build_fed_opt
from tff_adaptive.algorithms.builders import build_fed_prox
from tff_adaptive.algorithms.builders import build_fed_yogi
from tff_adaptive.algorithms.builders import build_scaffold
from tff_adaptive.algorithms.builders import build_scaffold_m
from tff_adaptive.algorithms.builders import is_stateful
from tff_adaptive.algorithms.stateful import ServerState
from tff_adaptive.algorithms.stateful import StatefulProcess

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
