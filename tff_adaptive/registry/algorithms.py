"""The entries of all algorithms, as plain data; see `registry.table`."""

import dataclasses
from collections.abc import Callable, Mapping

from tff_adaptive._utils import validation
from tff_adaptive.registry.entries import Algorithm, Counts, Hyperparameter, by_name

_FED_OPT = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2'
_ADA_BEST = 'Varno et al., "AdaBest", ECCV 2022, Algorithm 1'


def _number(check: validation.Check, words: str) -> Callable[..., Hyperparameter]:
  """Returns a function that makes checked float hyperparameters; their help ends in `words`."""

  def describe(name: str, default: float, what: str, hint: str = '') -> Hyperparameter:
    return Hyperparameter(name, float, default, what + words, check, hint)

  return describe


decay = _number(validation.in_unit_interval, ', in [0, 1)')
above_zero = _number(validation.above_zero, ', > 0')
at_least_zero = _number(validation.at_least_zero, ', >= 0')
up_to_one = _number(validation.in_half_open_unit_interval, '')  # `what` names the range.

_WITH_MOMENTUM = ('sgdm', 'adam', 'yogi', 'nesterov', 'lamb', 'lion')
# The value of FedDyn and AdaBest in all experiments of AdaBest, section 4.1.
_MU = Hyperparameter(
  'mu', float, 0.02, "Weight of the client's correction", validation.at_least_zero
)
_SCALE_MU = Hyperparameter(
  'scale_mu', bool, False, 'Scale mu by mean examples / examples of the client'
)

_BASE = 'The optimizer whose statistics are frozen during a round'
_BASES = ('sgdm', 'adam', 'adagrad')
_MIME = (
  Hyperparameter(
    'base_optimizer', str, 'sgdm', _BASE, hint='the paper has these three', choices=_BASES
  ),
  decay('base_beta1', 0.9, 'Decay of m, for sgdm and adam', 'give 0.9, say'),
  decay('base_beta2', 0.99, 'Decay of v, for adam', 'give 0.99, say'),
  above_zero('base_eps', 1e-3, 'Added to the root of v, for adam and adagrad', 'give 1e-3, say'),
)


def _mime(name: str, title: str, description: str) -> Algorithm:
  """Returns the entry of Mime or MimeLite."""
  return Algorithm(
    name,
    title,
    description,
    'Karimireddy et al., "Breaking the Centralized Barrier ...", NeurIPS 2021, Algorithm 1',
    f'tff_adaptive.corrections.mime:{title}',
    assumes_sgd='it applies the base optimizer itself',
    hyperparameters=_MIME,
    uploads='the gradient over all its examples',
  )


_CORRECTIONS: Mapping[str, Algorithm] = by_name(
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
      f'FedAvg with {name} on the server',
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
    assumes_sgd='its c_i is the change of the model over K_i eta_l',
    hyperparameters=(
      Hyperparameter(
        'scaffold_option',
        int,
        2,
        "The paper's option I (1) or II (2); 1 is not for stackoverflow_lr, whose loss is a sum",
        choices=(1, 2),
      ),
    ),
    is_stateful=True,
    client_weighting='uniform',
    uploads='the change of c_i',
  ),
  Algorithm(
    'scaffold_m',
    'SCAFFOLD/m',
    'SCAFFOLD whose server computes its control variate from the updates',
    _ADA_BEST,
    'tff_adaptive.corrections.scaffold:ScaffoldM',
    assumes_sgd='its h_i is the change of the model over K_i eta_l',
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
        0.96,  # AdaBest, section 4.1: chosen at 10 % participation.
        "Factor of the server's drift estimate, in [0, 1]",
        validation.up_to_one,
        'the paper uses 0.2 to 0.98',
        # From results/ada_best_beta.md. g-bar + h already is a momentum over the
        # pseudo-gradients. With a second momentum, as that of sgdm, adam and yogi, the paper's 0.96
        # diverges. Adagrad has no momentum; 0.8 was the best value for it.
        default_with={'adagrad': 0.8, **dict.fromkeys(_WITH_MOMENTUM, 0.2)},
      ),
      up_to_one(
        'beta_decay',
        1.0,
        'Factor in (0, 1] for beta when ||h|| stops falling; 1 keeps beta',
        'give a factor such as 0.5, or 1 to keep beta',
      ),
    ),
    is_stateful=True,
    client_weighting='uniform',
    counts=lambda _: Counts(),
  ),
  Algorithm(
    'fed_nova',
    'FedNova',
    'updates divided by the effective number of local steps',
    'Wang et al., "Tackling the Objective Inconsistency Problem ...", NeurIPS 2020, equation (7)',
    'tff_adaptive.corrections.fed_nova:FedNova',
    assumes_sgd='its normalisation counts steps of SGD',
    hyperparameters=(
      decay('local_momentum', 0.0, "Momentum of the clients' SGD", 'give 0 for none'),
      dataclasses.replace(_MU, default=0.0, hint='give 0 for none'),
    ),
    uploads='the effective number of its local steps',
  ),
  Algorithm(
    'fed_cm',
    'FedCM',
    'local gradients mixed with the direction of the last round',
    'Xu et al., "FedCM: Federated Learning with Client-level Momentum", 2021, Algorithm 1',
    'tff_adaptive.corrections.fed_cm:FedCM',
    assumes_sgd='its direction is the change of the model over K_i eta_l',
    hyperparameters=(
      up_to_one(
        'alpha', 0.1, 'Weight of the local gradient, in (0, 1]; 1 is FedAvg', 'the paper uses 0.1'
      ),
    ),
    client_weighting='uniform',
    counts=lambda _: Counts(down=2),
    uploads='g_i / (K_i eta_l)',
  ),
  Algorithm(
    'fed_exp',
    'FedExP',
    "a server step that grows with the disagreement of the clients' updates",
    'Jhunjhunwala et al., "FedExP", ICLR 2023, Algorithm 1',
    'tff_adaptive.corrections.fed_exp:FedExP',
    hyperparameters=(
      at_least_zero(
        'eps',
        1e-3,
        'Added to the squared norm of the mean update',
        'the paper tunes it between 1e-3 and 1e-1',
      ),
    ),
    client_weighting='uniform',
    uploads='the squared norm of its update',
  ),
  _mime('mime_lite', 'MimeLite', "clients use the server's optimizer statistics in their steps"),
  _mime('mime', 'Mime', 'MimeLite with variance-reduced local gradients, two exchanges a round'),
  Algorithm(
    'delta_sgd',
    'Delta-SGD',
    'each client finds its step size from its own gradients',
    'Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients", ICLR 2024, Algorithm 1',
    'tff_adaptive.corrections.delta_sgd:DeltaSGD',
    assumes_sgd='it finds the step size of SGD',
    hyperparameters=(
      above_zero('gamma', 2.0, 'Factor of the estimated inverse smoothness', 'the paper uses 2'),
      at_least_zero('growth', 0.1, 'How fast the step size may grow', 'the paper uses 0.1'),
    ),
  ),
  Algorithm(
    'scaffnew',
    'Scaffnew',
    'control variates and a random number of local steps, all clients in every round',
    'Mishchenko et al., "ProxSkip", ICML 2022, Algorithm 2',
    'tff_adaptive.corrections.scaffnew:Scaffnew',
    assumes_sgd='its h_i moves by the change of the model over eta_l',
    settings={'participation': 1.0, 'local_steps': 10, 'random_local_steps': True},
    is_stateful=True,
    client_weighting='uniform',
  ),
)


def _sam(name: str, title: str, of: str, paper: str, rho: float = 0.05) -> Algorithm:
  """Returns the algorithm `of` with sharpness-aware minimization at the clients."""
  correction = _CORRECTIONS[of]
  return dataclasses.replace(
    correction,
    name=name,
    title=title,
    description=f'{correction.title} with sharpness-aware minimization at the clients',
    paper=paper,
    settings={'sam_rho': rho},
  )


ALGORITHMS: Mapping[str, Algorithm] = by_name(
  *_CORRECTIONS.values(),
  _sam('fed_sam', 'FedSAM', 'fed_avg', 'Qu et al., ICML 2022; Caldarola et al., ECCV 2022'),
  _sam('mo_fed_sam', 'MoFedSAM', 'fed_cm', 'Qu et al., ICML 2022, Algorithm 2'),
  _sam('fed_gamma', 'FedGAMMA', 'scaffold', 'Dai et al., IEEE TNNLS 2023'),
  dataclasses.replace(
    _sam(
      'fed_speed',
      'FedSpeed',
      'fed_dyn',
      "Sun et al., ICLR 2023; as in the authors' code (FL-Simulator), with FedDyn's server state h",
      0.1,
    ),
    hyperparameters=(dataclasses.replace(_MU, default=0.1), _SCALE_MU),
  ),
  Algorithm(
    'diloco',
    'DiLoCo',
    'AdamW at the clients, which keep its state; Nesterov momentum on the server',
    'Douillard et al., "DiLoCo", 2023, Algorithm 1',
    server_optimizer='nesterov',
    settings={
      'client_optimizer': 'adamw',
      'client_optimizer_option': ('beta1=0.9', 'beta2=0.95', 'decay=0.1'),
      'client_optimizer_state': 'keep',
      'clip_norm': 1.0,
      'server_learning_rate': 0.7,
    },
    is_stateful=True,
    client_weighting='uniform',
  ),
  Algorithm(
    'fed_ada2',
    'FedAda2',
    'Adagrad at the clients, with its sums reset in each round; Adam on the server',
    'Lee et al., "Efficient Adaptive Federated Optimization", 2024',
    server_optimizer='adam',
    settings={'client_optimizer': 'adagrad'},
  ),
  Algorithm(
    'fed_lalr',
    'FedLALR',
    'AMSGrad at the clients; the server averages the AMSGrad states',
    'Sun et al., "FedLALR: Client-Specific Adaptive Learning Rates ...", 2023',
    server_optimizer='sgd',
    settings={'client_optimizer': 'amsgrad', 'client_optimizer_state': 'average'},
  ),
)
# What federated results are compared with. No federated optimizer, so not in the tables of these.
BASELINES: Mapping[str, Algorithm] = by_name(
  Algorithm(
    'centralized',
    'Centralised',
    'one client, which has the examples of all and keeps the state of its optimizer',
    server_optimizer='sgd',
    settings={'server_learning_rate': 1.0},
    pools_clients=True,
  ),
)
