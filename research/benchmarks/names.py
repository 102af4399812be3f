"""What the benchmark calls the ways to do a round, and where those in other toolkits are."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = {'pfl': 2, 'pfl1': 1}  # pfl-research in so many processes.
VARIANTS = {
  'stock_native': "TFF's stock process, native context",
  'stock_graph': "TFF's stock process, graph engine",
  'ours_native': 'this project, native context',
  'ours_graph': 'this project, graph engine',
  'ours_subrounds': 'this project, the cohort in four parts, as Ray workers get it',
  'ours_ray1': 'this project, one Ray worker on this machine',
  'ours_ray2': 'this project, two',
  'ours_ray4': 'this project, four',
  'run': 'rounds as training.train does them, of clients of unequal speed',
  'run_10': 'as many updates in rounds of 10 clients',
  **{f'run_buffered{b}': f'as many updates with a buffer of {b}' for b in (50, 10, 1)},
  'hand': 'loop by hand',
  'pfl': 'pfl-research with PyTorch, two processes',
  'pfl1': 'the same, one process',
}
OPTIONS = {  # Of ours_graph, as in ours_graph+xla+bfloat16; `ray2` of run, as in run_10+ray2.
  'ray2': 'on two Ray workers (run, run_10 and the buffered ones)',
  'xla': 'local steps compiled',
  'lstm': 'LSTMs as compiled operations (W3)',
  'bfloat16': 'mixed precision',
  'float16': 'the same',
  'single': 'clients one after another',
  'together': 'the whole cohort in batched operations',
  'tensors': "results as TensorFlow's tensors",
}
HELP = (
  '; '.join(f'{name}: {what}' for name, what in VARIANTS.items())
  + '; ours_graph and run also with '
  + ('; '.join(f'+{name}: {what}' for name, what in OPTIONS.items()))
)


def split_variant(variant: str) -> tuple[str, list[str]]:
  """Splits a variant into its name and its options; ValueError if there is no such variant."""
  name, *options = variant.split('+')
  of_run = name.startswith('run') and {*options} <= {'ray2'}
  of_graph = name == 'ours_graph' and {*options} <= {*OPTIONS} - {'ray2'}
  if name not in VARIANTS or (options and not of_run and not of_graph):
    raise ValueError(
      f'unknown variant {variant!r}; there are {", ".join(VARIANTS)}, ours_graph also with'
      f' +{", +".join(o for o in OPTIONS if o != "ray2")}, and those of run with +ray2'
    )
  return name, options


def command(workload: str, variant: str, data_dir: str, device: str) -> list[str]:
  """The command line of a process that does rounds of a variant of a workload."""
  if variant not in PEERS:
    module = f'{__package__}.children'
    return [sys.executable, '-m', module, workload, variant, data_dir, device]
  launch = ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={PEERS[variant]}']
  script = str(ROOT / 'research' / 'peers' / 'pfl_rounds.py')
  return [str(peer_python('pfl')), *(launch if PEERS[variant] > 1 else []), script, workload]


def missing(workload: str, variant: str) -> str | None:
  """Why a variant cannot run a workload here, or None."""
  if variant in PEERS and workload not in ('W1', 'W1s', 'W2', 'W3', 'W4'):
    return 'it has models of W1 to W4 only'
  if variant in PEERS and not peer_python('pfl').exists():
    return f'there is no {peer_python("pfl")}: sh scripts/env/setup_peers.sh makes it'
  return None


def peer_python(environment: str) -> pathlib.Path:
  """The Python of an environment of scripts/env/setup_peers.sh, whether there is one or not."""
  return ROOT / '.peers' / environment / 'bin' / 'python'


def peer_version(python: str | pathlib.Path, package: str) -> str:
  """The version of a package that a Python has."""
  program = f'import importlib.metadata as m; print(m.version({package!r}))'
  return subprocess.check_output([python, '-c', program], text=True).strip()
