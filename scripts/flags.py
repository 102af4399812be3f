"""The flags of scripts/train.py and their help; nothing here imports TensorFlow."""

import re
import textwrap
from typing import Any, Optional

from absl import flags as absl_flags

from tasks import catalog
from tff_adaptive import names

_INTRODUCTION = """\
Trains a federated optimizer on a task: a client correction, times a server optimizer, times a
schedule. What is not given is what the task's paper used.

usage: python scripts/train.py [--flag=value ...] [--flagfile=FILE]
"""

_EXAMPLES = """\
Examples:
  python scripts/train.py
      FedYogi on handwritten digits that come with scikit-learn: no download, some ten seconds.
  python scripts/train.py --task=emnist_cr --algorithm=fed_adam --data_dir=DIR
      The paper's EMNIST experiment with its tuned rates; DIR holds TFF's emnist_all.sqlite.
      Without --data_dir TFF downloads it.
  python scripts/train.py --algorithm=ada_best --server_optimizer=yogi --output_dir=runs/mine
      AdaBest's correction with Yogi on the server.
  python scripts/train.py --flagfile=scripts/configs/digits.flags --seed=1
      Flags from a file, one a line; those after it win.

Ctrl-C ends after saving, and the same command again goes on where it ended.
"""

# (group, kind, name, default, help). A default of None is decided in settings.py.
_FLAGS = (
  ('What', str, 'task', 'digits', 'The task; see the list above.'),
  ('What', str, 'algorithm', 'fed_yogi', 'The algorithm; see the list above.'),
  (
    'What',
    str,
    'server_optimizer',
    None,
    'Server optimizer of a drift-corrected algorithm; sgd is the published algorithm.',
  ),
  (
    'What',
    list,
    'task_option',
    [],
    "A task's own option, NAME=VALUE, such as only_digits=true or alpha=0.3; may be repeated.",
  ),
  ('What', int, 'seed', 0, 'Seeds the partition, the initial weights, sampling and shuffling.'),
  ('How long', int, 'rounds', None, 'Rounds.'),
  ('How long', int, 'clients_per_round', None, 'Clients drawn each round.'),
  ('How long', int, 'client_epochs', None, 'Epochs a client trains in a round.'),
  ('How long', int, 'batch_size', None, 'Examples in a local step; 0 for all at once.'),
  (
    'How long',
    bool,
    'fill_last_batch',
    None,
    "Fill the last batch by drawing again from the client's examples, as AdaBest's experiments do.",
  ),
  (
    'How long',
    int,
    'max_examples_per_client',
    None,
    'Only the first so many examples of a client are used; 0 for all.',
  ),
  ('Rates', float, 'client_learning_rate', None, 'Client rate eta_l.'),
  ('Rates', float, 'server_learning_rate', None, 'Server rate eta.'),
  ('Rates', str, 'client_schedule', None, 'Schedule of the client rate by round.'),
  (
    'Rates',
    list,
    'client_schedule_option',
    [],
    'Option of the client schedule, NAME=VALUE: warmup_rounds for all; factor, every for'
    ' exp_decay; factor for round_decay; kappa, local_steps for diminishing. May be repeated.',
  ),
  ('Rates', str, 'server_schedule', None, 'Schedule of the server rate by round.'),
  ('Rates', list, 'server_schedule_option', [], 'Option of the server schedule, as above.'),
  ('Server optimizer', float, 'tau', None, 'Degree of adaptivity of adagrad, adam, yogi; > 0.'),
  ('Server optimizer', float, 'beta1', None, 'Decay of m; in [0, 1). Default 0.9; adagrad 0.'),
  ('Server optimizer', float, 'beta2', None, 'Decay of v of adam, yogi; in [0, 1). Default 0.99.'),
  ('Server optimizer', float, 'momentum', None, 'Momentum of sgdm; in [0, 1). Default 0.9.'),
  (
    'Server optimizer',
    bool,
    'bias_correction',
    None,
    "Bias correction of adam, yogi, as in the paper's published code; off in the paper.",
  ),
  ('Server optimizer', float, 'initial_v', None, 'First v of adagrad, adam, yogi. Default tau^2.'),
  ('Client correction', float, 'mu', None, 'mu of fed_prox, fed_dyn, ada_best.'),
  (
    'Client correction',
    bool,
    'scale_mu',
    None,
    'Scale mu of fed_dyn, ada_best by mean examples / examples of the client.',
  ),
  (
    'Client correction',
    float,
    'beta',
    None,
    'beta of ada_best; in [0, 1]. Default 0.96; with sgdm, adam, yogi 0.2, with adagrad 0.8.',
  ),
  (
    'Client correction',
    float,
    'beta_decay',
    None,
    "Factor in (0, 1] for ada_best's beta when ||h|| stops falling; 1 keeps beta. Default 1.",
  ),
  (
    'Client correction',
    int,
    'scaffold_option',
    None,
    'Option 1 or 2 of scaffold. Default 2; 1 is not for stackoverflow_lr, whose loss is a sum.',
  ),
  (
    'Client work',
    str,
    'client_weighting',
    None,
    'Weight of a client: examples, uniform, or tokens (shakespeare and stackoverflow_nwp).',
  ),
  ('Client work', float, 'weight_decay', None, 'Weight decay of the clients.'),
  ('Client work', float, 'clip_norm', None, 'Clips local gradients to this 2-norm. Default none.'),
  (
    'Client work',
    str,
    'client_state_store',
    None,
    'Where clients of a stateful algorithm remember: memory or disk. Default memory.',
  ),
  (
    'Client work',
    str,
    'client_state_dir',
    None,
    'Folder of the file with the client states and the checkpoint; default in output_dir.',
  ),
  (
    'Where',
    str,
    'output_dir',
    None,
    "The run's folder; a run found there is resumed. Default runs/TASK_ALGORITHM.",
  ),
  ('Where', str, 'data_dir', None, "Folder with the task's files; default: TFF's download."),
  (
    'Where',
    str,
    'engine',
    'graph',
    "graph: one TensorFlow graph a round; native: TFF's own runtime.",
  ),
  (
    'Where',
    int,
    'clients_per_step',
    None,
    'Clients that train together, as batched operations, in the graph engine. Default: one; on a'
    ' GPU the cohort, at most 32, for a model that takes a client axis; lower it where memory runs'
    ' out.',
  ),
  (
    'Where',
    int,
    'parallel_clients',
    None,
    'Clients that train side by side, each on a thread, in the graph engine. Default: the'
    ' processors, at most 4 and the clients of a round; memory grows with it. With as many as'
    ' processors, TensorFlow takes one thread an operation, unless TF_NUM_INTRAOP_THREADS is set.',
  ),
  (
    'Where',
    str,
    'device',
    None,
    'auto, cpu or gpu, of the graph engine; several GPUs divide the clients. Default auto: a GPU if'
    ' TensorFlow has one.',
  ),
  (
    'Where',
    str,
    'mixed_precision',
    None,
    'bfloat16 or float16: clients compute predictions and their gradients in it, by float32'
    ' weights; all else stays float32. Gradients differ by some percent. float16 computes'
    ' gradients 1024 times as large, and a client in which they overflow counts as diverged.'
    ' Default: float32 throughout.',
  ),
  (
    'Where',
    bool,
    'xla',
    None,
    'XLA compiles the local step. For GPUs; on a CPU it was faster for an MLP and twice as slow for'
    ' a CNN. Dropout draws other numbers. Default no.',
  ),
  (
    'Where',
    str,
    'workers',
    None,
    'Addresses host:port,host:port of workers (scripts/worker.py) that train the clients. Default:'
    ' this process does.',
  ),
  (
    'Where',
    int,
    'subrounds',
    None,
    'Parts into which a cohort is divided for the workers; at least their number. It decides the'
    ' last bits, the number of workers does not. Default 4, or the number of workers if larger.',
  ),
  ('Where', int, 'rounds_per_evaluation', 10, 'Rounds from one evaluation to the next.'),
  ('Where', int, 'rounds_per_checkpoint', 50, 'Rounds from one checkpoint to the next.'),
)

NAMES = tuple(name for _, _, name, _, _ in _FLAGS)


def define() -> absl_flags.FlagValues:
  """Returns the flags, apart from absl's global ones, with their defaults."""
  values = absl_flags.FlagValues()
  definers = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_boolean,
    list: absl_flags.DEFINE_multi_string,
  }
  for _, kind, name, default, text in _FLAGS:
    definers[kind](name, default, text, flag_values=values)
  return values


def parse(arguments: list[str]) -> Optional[dict[str, Any]]:
  """Parses a command line.

  Args:
    arguments: The program's name and its arguments.

  Returns:
    Flag name -> value, None where none was given; or None if help was asked for.

  Raises:
    ValueError: With one line on what cannot be parsed.
  """
  if any(a in ('-h', '-help', '--help', '--helpfull', '-?') for a in arguments[1:]):
    return None
  values = define()
  try:
    rest = values(arguments)[1:]
  except absl_flags.Error as error:
    # Of a truth value it shows a tuple of the message and the value, which has been named.
    text = re.sub(r"\('(.*)', '.*'\)$", r'\1', str(error))
    raise ValueError(' '.join(text.split())) from None
  if rest:
    raise ValueError(f'unexpected argument {rest[0]!r}; flags are written --name=value.')
  return {name: values[name].value for name in NAMES}


def help_text() -> str:
  """Returns what --help shows: what there is, how to ask for it, and examples."""
  parts = [_INTRODUCTION]
  parts.append(_listed('Tasks', {name: catalog.describe(name) for name in catalog.names()}))
  algorithms = {
    name: entry.description + ('; clients remember' if entry.is_stateful else '')
    for name, entry in names.ALGORITHMS.items()
  }
  parts.append(_listed('Algorithms', algorithms))
  parts.append(_listed('Server optimizers', names.SERVER_OPTIMIZERS))
  parts.append(_listed('Schedules', names.SCHEDULES))
  group = None
  for its_group, _, name, default, text in _FLAGS:
    if its_group != group:
      group = its_group
      parts.append(f'{group}:\n')
    shown = '' if default in (None, []) else f' Default {default}.'
    parts.append(_entry(f'--{name}', text + shown, 26))
  parts.append('\n' + _EXAMPLES)
  return ''.join(parts)


def _listed(title: str, entries) -> str:
  lines = (_entry(name, text, 19) for name, text in entries.items())
  return f'\n{title}:\n' + ''.join(lines) + ('\n' if title == 'Schedules' else '')


def _entry(name: str, text: str, width: int) -> str:
  filled = textwrap.wrap(text, 96 - width)
  lines = [f'  {name:<{width - 1}} {filled[0]}'] + [' ' * (width + 2) + line for line in filled[1:]]
  return '\n'.join(lines) + '\n'
