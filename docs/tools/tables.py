"""Writes the guide's tables of algorithms and its list of tasks, between their markers.

.venv/bin/python docs/tools/tables.py
"""

import ast
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALGORITHMS = ROOT / 'docs' / 'guide' / 'algorithms.md'
TASKS = ROOT / 'docs' / 'guide' / 'task_list.md'
_MARKED = re.compile(r'(<!-- (algorithms|combinations|tasks) -->\n).*?(<!-- end -->)', re.DOTALL)


def algorithms() -> str:
  """Returns the table of the registry's algorithms in Markdown."""
  from tff_adaptive import registry

  lines = ['| `--algorithm` | | client state | hyperparameters | paper |', '|---|---|---|---|---|']
  for entry in registry.ALGORITHMS.values():
    hyperparameters = ', '.join(f'{h.name} = {_value(h.default)}' for h in entry.hyperparameters)
    state = 'yes' if entry.is_stateful else ''
    lines.append(
      f'| `{entry.name}` | {entry.title}: {entry.description} | {state} | {hyperparameters}'
      f' | {entry.paper} |'
    )
  return '\n'.join(lines) + '\n'


def combinations() -> str:
  """Returns what can be combined with what, from what the algorithms' parts declare."""
  from tff_adaptive import registry
  from tff_adaptive.registry import described

  entries = registry.ALGORITHMS.values()
  corrections = [e.name for e in entries if e.server_optimizer is None]
  prescribing = [e.name for e in entries if e.assumes_sgd or 'client_optimizer' in e.settings]
  without_sam = []
  for entry in entries:
    if any(part.refuses_loss_gradient for part in described.classes_of(entry)):
      without_sam.append(entry.name)
  lines = [
    f'- Client corrections are {_names(corrections)}.',
    f'- A client correction can be combined with any `--server_optimizer`: '
    f'{_names(registry.SERVER_OPTIMIZERS)}.',
    f'- Any `--client_optimizer` ({_names(registry.CLIENT_OPTIMIZERS)}) can be combined with every'
    f' algorithm that prescribes none. These prescribe one: {_names(prescribing)}'
    ' ([local training](training.md#local-training)).',
    f'- `--sam_rho` works with every algorithm except {_names(without_sam)}, and `--local_steps`'
    ' with every algorithm.',
  ]
  wrapped = [
    textwrap.fill(line, 130, subsequent_indent='  ', break_on_hyphens=False) for line in lines
  ]
  return '\n'.join(wrapped) + '\n'


def _names(names: Iterable[str]) -> str:
  """Returns names in code marks, with commas and a last `and`."""
  marked = [f'`{name}`' for name in names]
  if len(marked) < 2:
    return ''.join(marked)
  return f'{", ".join(marked[:-1])} and {marked[-1]}'


def _value(value: object) -> str:
  if isinstance(value, bool):
    return str(value).lower()
  return str(value)


def tasks() -> str:
  """Returns the settings, rates, data and options of all tasks in Markdown."""
  from tff_adaptive_tasks import catalog

  names = [f'`{name}`' for name in catalog.SERVER_OPTIMIZERS]
  columns = ('rounds', 'clients a round', 'batch', 'epochs', 'metric')
  sizes = [f'| task | {" | ".join(columns)} | other settings |', '|---' * 7 + '|']
  rates = [f'| task | {" | ".join(names)} |', '|---' * 6 + '|']
  pages = []
  for name, entry in catalog.TASKS.items():
    other = dict(entry.extra)
    if entry.max_examples_per_client:
      other['max_examples_per_client'] = entry.max_examples_per_client
    values = (entry.rounds, entry.clients_per_round, entry.batch_size, entry.client_epochs)
    said = ', '.join(f'{key}={_value(value)}' for key, value in other.items())
    sizes.append(f'| `{name}` | {" | ".join(map(str, values))} | {entry.metric} | {said} |')
    cells = []
    for server in catalog.SERVER_OPTIMIZERS:
      tuned = catalog.rates(name, server).values()
      cells.append(', '.join(f'{rate:.3g}' for rate in tuned))
    rates.append(f'| `{name}` | {" | ".join(cells)} |')
    pages.append(_task(name, entry.description, *entry.loader.split('.')))
  parts = ('## Settings', '\n'.join(sizes), '## Client rate, server rate and tau', '\n'.join(rates))
  return '\n\n'.join((*parts, '## Data and options', *pages)) + '\n\n'


def _task(name: str, description: str, module: str, function: str) -> str:
  """Returns one task's data and options, from the signature and docstring of its loader."""
  from tff_adaptive_tasks import catalog

  arguments, help_of = _loader(module, function)
  options = {
    key: value for key, value in arguments.items() if key not in ('data_dir', 'seed', 'name')
  }
  described = [*options]
  if name not in catalog.OFFLINE:
    described.insert(0, 'data_dir')
  for key in described:
    if key not in help_of:  # Where no files are needed, `OFFLINE` has the task.
      raise ValueError(f'tasks/{module}.py: describe {key} in the docstring of {function}')
  text = f'### {name}\n\n{description[0].upper()}{description[1:]}.'
  rows = [f'| `{key}` | {_value(value)} | {help_of[key]} |' for key, value in options.items()]
  if name not in catalog.OFFLINE:
    rows.insert(0, f'| `--data_dir` | none | {help_of["data_dir"]} |')
  if rows:
    return '\n'.join([text, '', '| option | default | |', '|---|---|---|', *rows])
  return text


def _loader(module: str, function: str) -> tuple[dict[str, object], dict[str, str]]:
  """Returns a loader's arguments with their defaults, and their text in its docstring."""
  path = ROOT / 'tasks' / f'{module}.py'
  functions = [n for n in ast.parse(path.read_text('utf-8')).body if isinstance(n, ast.FunctionDef)]
  (node,) = (n for n in functions if n.name == function)
  arguments = [a.arg for a in node.args.args]
  values = [ast.literal_eval(d) for d in node.args.defaults]
  text = ast.get_docstring(node) or ''
  help_of: dict[str, str] = {}
  for other in re.findall(r'see `([\w.]*load\w*)`', text):
    there, _, name = other.rpartition('.')
    help_of |= _loader(there or module, name)[1]
  described = re.findall(r'^  (\w+): (.*(?:\n    .*)*)', text.partition('Args:\n')[2], re.MULTILINE)
  help_of |= {key: ' '.join(said.split()) for key, said in described}
  return dict(zip(arguments[len(arguments) - len(values) :], values)), help_of


WRITERS: Mapping[str, Callable[[], str]] = {
  'algorithms': algorithms,
  'combinations': combinations,
  'tasks': tasks,
}


def updated(text: str) -> str:
  """Returns a page with its tables made anew from the registry and the catalogue."""

  def new(marked: re.Match) -> str:
    return marked[1] + WRITERS[marked[2]]() + marked[3]

  return _MARKED.sub(new, text)


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT))
  for page in (ALGORITHMS, TASKS):
    page.write_text(updated(page.read_text(encoding='utf-8')), encoding='utf-8')
