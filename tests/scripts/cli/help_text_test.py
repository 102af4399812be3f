"""--help teaches, at once."""

import subprocess
import sys

from scripts.cli import flags
from tff_adaptive import registry
from tff_adaptive_tasks import catalog


def test_help_teaches_and_imports_no_tensorflow():
  code = (
    'import sys; from scripts import train; code = train.main(["train.py", "--help"]);'
    ' sys.exit(code or "tensorflow" in sys.modules)'
  )
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  names = (*catalog.names(), *registry.ALGORITHMS, *registry.SERVER_OPTIMIZERS, *registry.SCHEDULES)
  for name in (*names, *(f'--{flag}' for flag in flags.names()), 'Examples'):
    assert name in done.stdout
  assert max(map(len, done.stdout.splitlines())) <= 100
  # A hyperparameter's help names its owners and its default.
  text = ' '.join(done.stdout.split())
  assert 'of ada_best. Default 0.96; with sgdm, adam, yogi 0.2; with adagrad 0.8.' in text
  assert 'of adagrad, adam, yogi. Default 0 (adagrad), 0.9 (adam, yogi).' in text
  # A task's own values are shown, and flags whose defaults they are say so.
  assert 'shakespeare 1200 10 1 4 client_weighting=tokens' in text
  assert 'FILE.py:FUNCTION 100 10 1 20 Algorithms' in text


def test_a_flag_with_a_default_of_the_task_says_so():
  help_texts = {flag.name: flag.help for flag in flags.table()}
  brought = {key for name in catalog.names() for key in catalog.sizes(name)}
  for name in brought | {'client_learning_rate', 'server_learning_rate', 'tau'}:
    assert 'Default' in help_texts[name], name
