"""--help teaches, at once."""

import itertools
import subprocess
import sys

from scripts import sweep, train
from scripts.cli import flags, help_text
from tff_adaptive import registry
from tff_adaptive_tasks import catalog


def test_help_teaches_and_imports_no_tensorflow():
  code = (
    'import sys; from scripts import train; code = train.main(["train.py", "--help"]);'
    ' sys.exit(code or "tensorflow" in sys.modules)'
  )
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  tables = (registry.ALGORITHMS, registry.SERVER_OPTIMIZERS, registry.CLIENT_OPTIMIZERS)
  names = [*catalog.names(), *registry.SCHEDULES, *itertools.chain.from_iterable(tables)]
  for name in (*names, *(f'--{flag.name}' for flag in flags.table()), 'Examples'):
    assert name in done.stdout
  assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_hyperparameters_help_names_its_owners_and_its_default():
  text = ' '.join(help_text.text().split())
  assert 'by ada_best. Default 0.96; with adagrad 0.8; with sgdm, adam, yogi, nesterov' in text
  assert 'Default 0 (adagrad), 0.9 (adam, yogi, lamb, lion).' in text
  assert 'Rounds between evaluations. Default 10.' in text
  assert 'Default no.' in text
  assert 'SGD with momentum adagrad' in text  # The options of server optimizers are flags.
  assert 'docs/guide/task_list.md has them. Algorithms' in text  # A task's own values.


def test_the_help_on_a_word_has_what_is_called_so_or_speaks_of_it(capsys):
  text = help_text.text('uplink')  # In a section whose heading has another word.
  assert {line.split()[0] for line in text.splitlines() if line.startswith('  --')} == {
    '--uplink',
    '--client_profiles',
  }
  assert text.startswith('\nUnavailable, slow and failing clients')
  assert '\nAlgorithms:\n  scaffold ' in help_text.text('SCAFFOLD')
  assert 'FedYogi' not in help_text.text('SCAFFOLD')
  assert '--client_learning_rate ' in help_text.text('lr')  # Elsewhere it is called so.
  assert sweep.main(['sweep.py', '--help=halving']) == 0
  assert capsys.readouterr().out.startswith('  --prune: asha: asynchronous successive halving.')
  assert sweep.main(['sweep.py', '--help=qqq']) == 2
  assert 'sweep.py: --help=qqq: no flag has this word; see --help.' in capsys.readouterr().err


def test_a_section_of_the_help_is_shown_alone(capsys):
  assert train.main(['train.py', '--help=rates']) == 0
  output = capsys.readouterr().out
  assert output.startswith('\nRates:\n  --client_learning_rate')
  assert '--rounds' not in output
  assert 'scaffold' in help_text.text('ALGORITHMS')
  assert train.main(['train.py', '--help=qqq']) == 2
  error = capsys.readouterr().err
  assert '--help=qqq: nothing has this word; give another, such as one of these headings' in error
  for flag in flags.table():
    assert f'; {flag.group}' in error
  help_texts = {flag.name: flag.help for flag in flags.table()}
  brought = set().union(*map(catalog.sizes, catalog.names()))
  for name in brought | {'client_learning_rate', 'server_learning_rate', 'tau'}:
    assert 'Default' in help_texts[name], name  # The task's.
