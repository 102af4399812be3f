"""The cases of the test vectors: algorithms, their hyperparameters and optimizers."""

from typing import Any

_ADAPTIVE = {'beta1': 0.9, 'beta2': 0.99, 'tau': 0.01}
_MOMENTS = {'beta1': 0.9, 'beta2': 0.99, 'tau': 1e-3}
SERVERS: dict[str, dict[str, Any]] = {
  'sgd': {},
  'sgdm': {'momentum': 0.9},
  'adagrad': {'beta1': 0.0, 'tau': 0.01, 'initial_v': 1e-4},
  'adam': {**_ADAPTIVE, 'initial_v': 1e-4, 'bias_correction': False},
  'yogi': {**_ADAPTIVE, 'initial_v': 1e-4, 'bias_correction': False},
  'nesterov': {'momentum': 0.9},
  'lamb': {**_MOMENTS, 'decay': 0.01},
  'lion': {'beta1': 0.9, 'beta2': 0.99, 'decay': 0.1},
}
RATES = {'sgd': 1.0, 'sgdm': 0.5, 'nesterov': 0.3}  # Of the others 0.1.
CLIENTS: dict[str, dict[str, Any]] = {
  'sgd': {},
  'sgdm': {'momentum': 0.5},
  'nesterov': {'momentum': 0.5},
  'adagrad': {'tau': 0.01, 'initial_v': 0.0},
  'adam': _MOMENTS,
  'amsgrad': _MOMENTS,
  'adamw': {**_MOMENTS, 'decay': 0.1},
  'lion': {'beta1': 0.9, 'beta2': 0.99, 'decay': 0.1},
  'muon': {'momentum': 0.9, 'beta2': 0.99, 'tau': 1e-3, 'decay': 0.1},
}
SGDM = {'base_optimizer': 'sgdm', 'base_beta1': 0.8, 'base_beta2': 0.9, 'base_eps': 0.1}
ADAM = {**SGDM, 'base_optimizer': 'adam'}
ADAGRAD = {**SGDM, 'base_optimizer': 'adagrad'}
NOVA = {'local_momentum': 0.0, 'mu': 0.0}
BEST = {'mu': 0.2, 'beta': 0.8, 'scale_mu': False, 'beta_decay': 1.0}


def case(
  algorithm: str,
  weighting: str = 'examples',
  hyperparameters: dict[str, Any] | None = None,
  *,
  name: str | None = None,
  server: str = 'sgd',
  client: str = 'sgd',
  **others: Any,
) -> dict[str, Any]:
  """The settings of a case, as they stand in its file."""
  clients = {'name': client, **CLIENTS[client], 'state': others.pop('state', 'reset')}
  servers = {'name': server, 'rate': RATES.get(server, 0.1), **SERVERS[server]}
  return {
    'name': name or algorithm,
    'algorithm': algorithm,
    'hyperparameters': hyperparameters or {},
    'client_weighting': weighting,
    'server_optimizer': {**servers, **others.pop('server_values', {})},
    'client_optimizer': clients,
    **{'sam_rho': 0.0, 'clip_norm': None, 'weight_decay': 0.0, **others},
  }


LEAST_SQUARES = [
  case('fed_avg'),
  *(case(f'fed_{s}', server=s) for s in ('adagrad', 'adam', 'yogi')),
  case('fed_avgm', server='sgdm'),
  case('fed_prox', 'examples', {'mu': 0.5}),
  case('scaffold', 'uniform', {'scaffold_option': 2}),
  case('scaffold_m', 'uniform'),
  case('fed_dyn', 'uniform', {'mu': 0.2, 'scale_mu': False}),
  case('ada_best', 'uniform', BEST),
  case('fed_nova', 'examples', NOVA),
  case('fed_cm', 'uniform', {'alpha': 0.3}),
  case('fed_exp', 'uniform', {'eps': 1e-3}),
  case('mime_lite', 'examples', SGDM),
  case('mime', 'examples', SGDM),
  case('delta_sgd', 'examples', {'gamma': 0.5, 'growth': 0.1}),
  case('scaffnew', 'uniform'),
  case('fed_sam', sam_rho=0.05),
  case('mo_fed_sam', 'uniform', {'alpha': 0.3}, sam_rho=0.05),
  case('fed_gamma', 'uniform', {'scaffold_option': 2}, sam_rho=0.05),
  case('fed_speed', 'uniform', {'mu': 0.2, 'scale_mu': False}, sam_rho=0.1),
  case('diloco', 'uniform', server='nesterov', client='adamw', state='keep', clip_norm=1.0),
  case('fed_dc', 'uniform', {'drift_weight': 0.2}),
  case('fed_acg', 'uniform', {'lookahead': 0.6, 'pull': 0.2}),
  case('fed_init', 'uniform', {'relaxation': 0.3}),
  case('fed_varp', 'uniform'),
  case('fed_lesam', 'uniform', {'rho': 0.3}),
  case('q_fed_avg', 'uniform', {'q': 0.7}),
  case('afl', 'uniform', {'lambda_rate': 0.05}),
  case('fed_adamw', 'uniform', {'global_share': 0.4}, client='adamw'),
  case('fed_muon', 'uniform', {'global_share': 0.4}, client='muon'),
  case('fed_lada', 'uniform', {'global_share': 0.6}, client='amsgrad'),
  case('fed_smoo', 'uniform', {'rho': 0.1, 'mu': 0.2, 'scale_mu': False}),
  case('ditto', 'uniform', {'lam': 0.3}),
  case('apfl', 'uniform', {'alpha_mix': 0.4, 'learn_alpha': False}),
  case('p_fed_me', 'uniform', {'moreau_lam': 3.0, 'inner_steps': 3, 'inner_rate': 0.05}),
  case('per_fed_avg', 'uniform', {'inner_rate': 0.1}),
  case('fed_ada2', client='adagrad', server='adam'),
  case('fed_lalr', client='amsgrad', state='average'),
]
CORRECTED = {'bias_correction': True, 'beta2': 0.999}
LOGISTIC = [
  *(case('fed_avg', 'uniform', name=f'server-{s}', server=s) for s in SERVERS),
  case('fed_avg', name='server-adagrad-momentum', server='adagrad', server_values={'beta1': 0.9}),
  *(
    case('fed_avg', name=f'server-{s}-corrected', server=s, server_values={**CORRECTED, **values})
    for s, values in (('adam', {'initial_v': 0.0}), ('yogi', {'initial_v': 1e-6}))
  ),
  *(case('fed_avg', name=f'client-{c}', client=c) for c in CLIENTS if c != 'sgd'),
  case('fed_avg', name='client-adamw-keep', client='adamw', state='keep', clip_norm=0.3),
  case('fed_avg', name='client-sgdm-average', client='sgdm', state='average', weight_decay=0.05),
  case('fed_prox', 'uniform', {'mu': 0.5}, server='adam', clip_norm=0.3),
  case('scaffold', 'examples', {'scaffold_option': 1}, server='yogi', weight_decay=0.05),
  case('scaffold_m', 'examples', server='sgdm'),
  case('fed_dyn', 'uniform', {'mu': 0.2, 'scale_mu': True}),
  case('ada_best', 'uniform', {**BEST, 'scale_mu': True}),
  case('ada_best', 'examples', {**BEST, 'beta': 0.2}, name='ada_best-yogi', server='yogi'),
  case('fed_nova', 'examples', {**NOVA, 'local_momentum': 0.7}, name='fed_nova-momentum'),
  case('fed_nova', 'uniform', {**NOVA, 'mu': 0.5}, name='fed_nova-proximal', server='sgdm'),
  case('fed_cm', 'examples', {'alpha': 0.3}, server='adam'),
  case('fed_exp', 'examples', {'eps': 1e-3}, server='sgdm'),
  case('mime_lite', 'uniform', ADAM, name='mime_lite-adam'),
  case('mime_lite', 'examples', ADAGRAD, name='mime_lite-adagrad', server='sgdm'),
  case('mime', 'uniform', ADAM, name='mime-adam'),
]
# Of the two tensors W and b one stays at the clients or is frozen; least squares have only one.
LOGISTIC += [
  case('fed_per', 'uniform', {'layers': 'weight_1'}, server='yogi'),
  case('lg_fed_avg', 'uniform', {'layers': 'weight_0'}),
  case('fed_rep', 'uniform', {'layers': 'weight_1', 'head_share': 0.4}),
  case('fed_babu', 'uniform', {'layers': 'weight_1'}, server='sgdm'),
  case('fed_bn', 'uniform', {'layers': 'weight_1'}),
  case('fed_ala', 'uniform', {'layers': 'weight_1', 'ala_share': 0.4, 'ala_rate': 0.5}),
  case(
    'apfl', 'examples', {'alpha_mix': 0.4, 'learn_alpha': True}, name='apfl-learnt', server='adam'
  ),
]
# Losses on the scores of three classes.
LOGISTIC += [
  case('fed_lc', 'examples', {'calibration': 0.5}),
  case('fed_ntd', 'uniform', {'distillation': 0.5, 'softening': 2.0}, server='yogi'),
]
# Chains with compressors, of which the model's twelve numbers are few enough to follow.
LOGISTIC += [
  case('fed_avg+top_k', 'examples', {'share': 0.25, 'feedback': 'ef14', 'decay': 0.9}),
  case('scaffold+top_k', 'uniform', {'scaffold_option': 2, 'share': 0.25, 'feedback': 'ef21'}),
  case('fed_avg+top_k_down', 'uniform', {'share': 0.25}, server='yogi'),
]
_OF_LOGISTIC = {c['algorithm'] for c in LOGISTIC}
LOGISTIC += [c for c in LEAST_SQUARES if c['algorithm'] not in _OF_LOGISTIC]
ASYNCHRONOUS = [
  case('fed_buff', 'uniform', {'buffer_size': 2, 'a': 0.5}, server='yogi'),
  case('fed_async', 'uniform', {'a': 2.0, 'b': 1.0}, server_values={'rate': 0.6}),
]
