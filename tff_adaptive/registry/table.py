"""Every algorithm, server optimizer and schedule, described once, as plain data.

Flags and their help, checks, defaults, the builders' arguments, cost columns, labels of reports and
the tables of the documentation are made from what stands here. Nothing here imports TensorFlow or
TFF, so that a command line can list, explain and check at once; code is named as 'module:attribute'
and imported by whoever builds.

To add an algorithm: a file of formulas in `tff_adaptive/corrections/` and an entry in `ALGORITHMS`.
One of your own needs neither: `algorithm('my_file.py:MyCorrection')`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tff_adaptive._utils import suggestions, user_code, validation
from tff_adaptive.registry import user_entries
from tff_adaptive.registry.entries import (
  Algorithm,
  Counts,
  Hyperparameter,
  Schedule,
  ServerOptimizer,
  by_name,
)

_FED_OPT = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2'
_ADA_BEST = 'Varno et al., "AdaBest", ECCV 2022, Algorithm 1'

_MU = Hyperparameter(
  'mu',
  float,
  0.02,  # AdaBest, section 4.2: throughout, for FedDyn and AdaBest alike.
  "Weight of the client's correction",
  validation.at_least_zero,
  'the paper uses 0.02',
)
_SCALE_MU = Hyperparameter(
  'scale_mu', bool, False, 'Scale mu by mean examples / examples of the client'
)


ALGORITHMS: Mapping[str, Algorithm] = by_name(
  Algorithm(
    'fed_avg',
    'FedAvg',
    'average of the client models (server SGD, rate 1)',
    'McMahan et al., "Communication-Efficient Learning of Deep Networks ...", AISTATS 2017',
    server_optimizer='sgd',
  ),
  Algorithm(
    'fed_avgm',
    'FedAvgM',
    'FedAvg with momentum on the server',
    'Hsu et al., "Measuring the Effects of Non-Identical Data Distribution ...", 2019',
    server_optimizer='sgdm',
  ),
  *(
    Algorithm(
      f'fed_{name.lower()}',
      f'Fed{name}',
      f'Algorithm 2 with {name} on the server',
      _FED_OPT,
      server_optimizer=name.lower(),
    )
    for name in ('Adagrad', 'Adam', 'Yogi')
  ),
  Algorithm(
    'fed_prox',
    'FedProx',
    'FedAvg with a proximal term in the client loss',
    'Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation (2)',
    'tff_adaptive.corrections.fed_prox:FedProx',
    hyperparameters=(_MU,),
  ),
  Algorithm(
    'scaffold',
    'SCAFFOLD',
    'client and server control variates, both exchanged',
    'Karimireddy et al., "SCAFFOLD", ICML 2020, Algorithm 1',
    'tff_adaptive.corrections.scaffold:Scaffold',
    hyperparameters=(
      Hyperparameter(
        'scaffold_option',
        int,
        2,
        "The paper's option I (1) or II (2); 1 is not for stackoverflow_lr, whose loss is a sum",
        hint='2 is the usual one',
        choices=(1, 2),
      ),
    ),
    is_stateful=True,
    client_weighting='uniform',
    counts=lambda _: Counts(down=2, up=2),
    uploads='the change of c_i',
  ),
  Algorithm(
    'scaffold_m',
    'SCAFFOLD/m',
    'SCAFFOLD sending half as much from the clients',
    _ADA_BEST,
    'tff_adaptive.corrections.scaffold:ScaffoldM',
    is_stateful=True,
    client_weighting='uniform',
    counts=lambda _: Counts(down=2),
    uploads='g_i / (K_i eta_l)',
  ),
  Algorithm(
    'fed_dyn',
    'FedDyn',
    'dynamic regularisation of the client losses',
    'Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021',
    'tff_adaptive.corrections.fed_dyn:FedDyn',
    hyperparameters=(_MU, _SCALE_MU),
    is_stateful=True,
    client_weighting='uniform',
  ),
  Algorithm(
    'ada_best',
    'AdaBest',
    'drift estimates that fade when a client is away',
    _ADA_BEST,
    'tff_adaptive.corrections.ada_best:AdaBest',
    hyperparameters=(
      _MU,
      _SCALE_MU,
      Hyperparameter(
        'beta',
        float,
        0.96,  # AdaBest, section 4.2: chosen at 10 % participation.
        "Weight of the past in the server's estimate, in [0, 1]",
        validation.up_to_one,
        'the paper uses 0.2 to 0.98',
        # From results/ada_best_beta.md. g-bar + h is a momentum over the pseudo-gradients
        # already; with a second one on top, that of sgdm, adam and yogi, the paper's 0.96
        # diverges. Adagrad has none, and 0.8 served it best.
        default_with=MappingProxyType({'sgdm': 0.2, 'adagrad': 0.8, 'adam': 0.2, 'yogi': 0.2}),
      ),
      Hyperparameter(
        'beta_decay',
        float,
        1.0,
        'Factor in (0, 1] for beta when ||h|| stops falling; 1 keeps beta',
        validation.in_half_open_unit_interval,
        'give a factor such as 0.5, or 1 to keep beta',
      ),
    ),
    is_stateful=True,
    client_weighting='uniform',
  ),
)

_DECAY_HINT = 'give a decay such as 0.9, or 0 for none'


def _beta1(default: float) -> Hyperparameter:
  return Hyperparameter(
    'beta1', float, default, 'Decay of m, in [0, 1)', validation.in_unit_interval, _DECAY_HINT
  )


_BETA2 = Hyperparameter(
  'beta2',
  float,
  0.99,
  'Decay of v, in [0, 1)',
  validation.in_unit_interval,
  'give a decay such as 0.99',
)
_TAU = Hyperparameter(
  'tau',
  float,
  1e-3,
  'Degree of adaptivity, > 0',
  validation.above_zero,
  'the paper tunes it between 1e-5 and 1e-1, 1e-3 is its default',
)
_BIAS_CORRECTION = Hyperparameter(
  'bias_correction',
  bool,
  False,
  "Bias correction, as in the paper's published code; off in the paper",
)
_INITIAL_V = Hyperparameter(
  'initial_v',
  float,
  None,
  'First v; tau^2 unless given',
  validation.at_least_zero,
  'give a value such as 1e-6, or leave it out for tau^2',
)

SERVER_OPTIMIZERS: Mapping[str, ServerOptimizer] = by_name(
  ServerOptimizer('sgd', 'SGD', 'x + eta Delta', 'tff_adaptive.optimizers:build_sgdm'),
  ServerOptimizer(
    'sgdm',
    'SGDM',
    'SGD with momentum',
    'tff_adaptive.optimizers:build_sgdm',
    (
      Hyperparameter(
        'momentum', float, 0.9, 'Momentum, in [0, 1)', validation.in_unit_interval, _DECAY_HINT
      ),
    ),
  ),
  ServerOptimizer(
    'adagrad',
    'Adagrad',
    'v grows by Delta^2',
    'tff_adaptive.optimizers:build_adagrad',
    (_TAU, _beta1(0.0), _INITIAL_V),
  ),
  ServerOptimizer(
    'adam',
    'Adam',
    'v is a moving average of Delta^2',
    'tff_adaptive.optimizers:build_adam',
    (_TAU, _beta1(0.9), _BETA2, _BIAS_CORRECTION, _INITIAL_V),
  ),
  ServerOptimizer(
    'yogi',
    'Yogi',
    'v moves towards Delta^2 by at most (1 - beta2) Delta^2',
    'tff_adaptive.optimizers:build_yogi',
    (_TAU, _beta1(0.9), _BETA2, _BIAS_CORRECTION, _INITIAL_V),
  ),
)

_WARMUP_ROUNDS = Hyperparameter(
  'warmup_rounds', int, 0, 'Rounds of linear warm-up', validation.whole, 'give 0 for no warm-up'
)


def _factor(default: float) -> Hyperparameter:
  return Hyperparameter(
    'factor',
    float,
    default,
    'Factor by which the rate shrinks, in (0, 1]',
    validation.in_half_open_unit_interval,
    'give the factor by which the rate shrinks, such as 0.998',
  )


SCHEDULES: Mapping[str, Schedule] = by_name(
  Schedule(
    'constant',
    'the base rate in every round',
    'tff_adaptive.schedules:Constant',
    (_WARMUP_ROUNDS,),
  ),
  Schedule(
    'inv_sqrt',
    'base rate / sqrt(t + 1)',
    'tff_adaptive.schedules:InvSqrt',
    (_WARMUP_ROUNDS,),
  ),
  Schedule(
    'exp_decay',
    'base rate x 0.1 every 500 rounds, a staircase',
    'tff_adaptive.schedules:ExpDecay',
    (
      _factor(0.1),
      Hyperparameter(
        'every',
        int,
        500,
        'Rounds on one stair',
        validation.count,
        'give a number of rounds such as 500',
      ),
      _WARMUP_ROUNDS,
    ),
  ),
  Schedule(
    'round_decay',
    'base rate x 0.998 each round',
    'tff_adaptive.schedules:RoundDecay',
    (_factor(0.998), _WARMUP_ROUNDS),
  ),
  Schedule(
    'diminishing',
    'base rate x gamma / (gamma + local steps so far)',
    'tff_adaptive.schedules:Diminishing',
    (
      Hyperparameter(
        'kappa',
        float,
        1.0,
        "The problem's condition number, >= 1",
        validation.at_least_one,
        'give the ratio of the largest to the least curvature',
      ),
      Hyperparameter(
        'local_steps',
        int,
        1,
        'E, the local steps of a round',
        validation.count,
        'give the local steps of one round',
      ),
      _WARMUP_ROUNDS,
    ),
  ),
)


def algorithm(spec: str) -> Algorithm:
  """Returns the entry of an algorithm.

  Args:
    spec: A name in `ALGORITHMS`, or 'FILE.py:NAME': a user's own, an `Algorithm` or a frozen
      dataclass that subclasses `corrections.Correction`, of which the entry is derived: see
      `registry.user_entries.algorithm`.

  Raises:
    ValueError: In one line, if there is none of that name, or the file has no such algorithm.
  """
  if user_code.is_reference(spec):
    return user_entries.algorithm(spec)
  return _named('algorithm', spec, ALGORITHMS)


def server_optimizer(spec: str) -> ServerOptimizer:
  """Returns the entry of a server optimizer.

  Args:
    spec: A name in `SERVER_OPTIMIZERS`, or 'FILE.py:NAME': a user's own, a `ServerOptimizer` or a
      function of the learning rate and options to a TFF optimizer.

  Raises:
    ValueError: As `algorithm`.
  """
  if user_code.is_reference(spec):
    return user_entries.server_optimizer(spec)
  return _named('server optimizer', spec, SERVER_OPTIMIZERS)


def schedule(name: str) -> Schedule:
  """Returns the entry of a schedule; ValueError if there is none of that name."""
  return _named('schedule', name, SCHEDULES)


def _named(kind: str, name: str, table: Mapping[str, Any]) -> Any:
  if name not in table:
    raise ValueError(suggestions.unknown(kind, name, table))
  return table[name]
