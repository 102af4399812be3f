"""Files of a user's own, and the runs that take them."""

import textwrap

from scripts import train as train_script
from tests.helpers import fakes

_FLAGS = ('--task=digits', '--rounds_per_evaluation=2', '--rounds_per_checkpoint=2', '--seed=4')

TASK = """
  import numpy as np

  import tff_adaptive_tasks as tasks


  def load(data_dir, seed, clients: int = 3, noise: float = 0.0):
    rng = np.random.default_rng(seed)
    base = tasks.load('digits', num_clients=clients, seed=seed)
    train = tasks.InMemoryClientData(
      {c: tuple(base.train.load(c).values()) for c in base.train.client_ids})
    return tasks.Task(
      name='mine', build_model=base.build_model, train=train, validation=base.validation,
      source=f'noise {noise + 0 * rng.random()}')
"""


def write(folder, name, text):
  """Writes a file and returns its path."""
  path = folder / name
  path.write_text(textwrap.dedent(text))
  return str(path)


def train(folder, *flags):
  """Runs scripts/train.py in this process, without figures; returns its exit code."""
  with fakes.no_figures():
    return train_script.main(['train.py', *_FLAGS, f'--output_dir={folder}', *flags])


rows = fakes.rows
