"""Finds the flag that was meant by a name that no flag has."""

from collections.abc import Container, Iterable, Mapping

from tff_adaptive._utils import suggestions

# What other programs call flags of train.py.
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
  'lr': ('client_learning_rate', 'server_learning_rate'),
  'learning_rate': ('client_learning_rate', 'server_learning_rate'),
  'client_lr': ('client_learning_rate',),
  'server_lr': ('server_learning_rate',),
  'epochs': ('client_epochs',),
  'local_epochs': ('client_epochs',),
  'num_epochs': ('client_epochs',),
  'batch': ('batch_size',),
  'client_batch_size': ('batch_size',),
  'num_rounds': ('rounds',),
  'total_rounds': ('rounds',),
  'steps': ('local_steps',),
  'optimizer': ('server_optimizer', 'client_optimizer'),
  'opt': ('server_optimizer', 'client_optimizer'),
  'strategy': ('algorithm',),
  'method': ('algorithm',),
  'dataset': ('task',),
  'data': ('task', 'data_dir'),
  'model': ('task', 'task_option'),
  'clients': ('clients_per_round',),
  'num_clients': ('clients_per_round', 'task_option'),
  'cohort_size': ('clients_per_round',),
  'fraction': ('participation',),
  'fraction_fit': ('participation',),
  'out': ('output_dir',),
  'output': ('output_dir',),
  'logdir': ('output_dir',),
  'save_dir': ('output_dir',),
  'wd': ('weight_decay',),
  'l2': ('weight_decay',),
  'random_seed': ('seed',),
  'dp': ('aggregator', 'target_epsilon'),
  'epsilon': ('target_epsilon', 'tau'),
  'gpu': ('device',),
  'gpus': ('device', 'gpus_per_worker'),
  'workers': ('ray_workers',),
  'async': ('synchrony',),
}


def meant(name: str, flags: Iterable[str]) -> list[str]:
  """Returns those of `flags` that are most likely meant by `name`, the likeliest first."""
  names = list(flags)
  plain = name.lower().replace('-', '_')
  elsewhere = [flag for flag in _ELSEWHERE.get(plain, ()) if flag in names]
  return elsewhere or suggestions.nearest(name, names)


def hint(name: str, flags: Iterable[str]) -> str:
  """Returns 'did you mean --a or --b?' for a name that no flag has; '' if no flag is like it."""
  names = meant(name, flags)
  if not names:
    return ''
  return f'did you mean {" or ".join(f"--{flag}" for flag in names)}?'


def called(word: str, flag: str) -> bool:
  """Returns whether `flag` is what other programs call `word`."""
  others: Container[str] = _ELSEWHERE.get(word.lower().replace('-', '_'), ())
  return flag in others
