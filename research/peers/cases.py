"""What a case of the test vectors computes, as far as other libraries compute it too."""

from typing import Any

SERVERS = {'sgd': 'fed_avg', 'sgdm': 'fed_avgm'}  # Of the others fed_adam, fed_yogi and so on.
PLAIN = {'sam_rho': 0.0, 'clip_norm': None, 'weight_decay': 0.0}


def algorithm(case: Any) -> str | None:
  """The algorithm by the name of its least-squares case; None for further options.

  Few of the libraries combine an algorithm with a server optimizer, clipping and so on.
  """
  options = {option: case[option] for option in PLAIN}
  if options != PLAIN or case['client_optimizer'] != {'name': 'sgd', 'state': 'reset'}:
    return None
  server = case['server_optimizer']
  kind = SERVERS.get(server['name'], f'fed_{server["name"]}')
  if case['algorithm'] in ('fed_avg', kind):
    if kind == 'fed_adagrad' and server['beta1']:
      return 'fed_adagrad-momentum'
    return kind
  is_average = server == {'name': 'sgd', 'rate': 1.0}
  if not is_average or case['hyperparameters'].get('base_optimizer', 'sgdm') != 'sgdm':
    return None
  return case['algorithm']
