"""Where the other toolkits' environments are, and how their rounds are started in them."""

import dataclasses
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / '.peers'
_SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / 'peers'
_SYNTHETIC = ('W1', 'W1s', 'W2', 'W3', 'W4')
_ALL = (*_SYNTHETIC, 'cifar10_iid')
_VERSION = 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))'


@dataclasses.dataclass(frozen=True)
class Peer:
  """A way to do rounds in another toolkit."""

  description: str  # One line.
  environment: str  # The folder of its virtual environment, and the name of its package.
  package: str  # Its package in the Python Package Index.
  script: str  # The file of `peers/` that runs it.
  processes: int = 1  # How many of it train together.
  workloads: tuple[str, ...] = _SYNTHETIC  # What it has models of.

  def python(self, folder: pathlib.Path = FOLDER) -> pathlib.Path:
    """The Python of its environment, whether there is one or not."""
    return folder / self.environment / 'bin' / 'python'

  def missing(self, workload: str, folder: pathlib.Path = FOLDER) -> str | None:
    """Why it cannot run a workload here, or None."""
    if workload not in self.workloads:
      return f'it has models of {", ".join(self.workloads)} only'
    if self.python(folder).exists():
      return None
    return f'there is no {self.python(folder)}: sh scripts/env/setup_peers.sh makes it'

  def command(self, workload: str, folder: pathlib.Path = FOLDER) -> list[str]:
    """The command line that does rounds of a workload."""
    launch = [str(_SCRIPTS / 'launch.py'), str(self.processes)] if self.processes > 1 else []
    return [str(self.python(folder)), *launch, str(_SCRIPTS / self.script), workload]

  def version(self, folder: pathlib.Path = FOLDER) -> str:
    """The installed version of its package, or 'unknown'."""
    command = [str(self.python(folder)), '-c', _VERSION, self.package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or 'unknown'


PEERS = {
  'pfl': Peer(
    'pfl-research with PyTorch, two processes',
    'pfl',
    'pfl',
    'pfl_rounds.py',
    processes=2,
    workloads=_ALL,
  ),
  'pfl1': Peer('the same, one process', 'pfl', 'pfl', 'pfl_rounds.py', workloads=_ALL),
}
