"""Installs the locked packages into the environment of the Python that runs this.

`make env` runs it as a file; pip installs it as `tff-adaptive-environment`. It uses the standard
library and pip only.

pip cannot resolve TensorFlow Federated 0.87.0: its metadata refuse Python 3.12 and the versions of
TensorFlow and NumPy with which it runs here. The lock lists all packages with their hashes, and is
installed without looking at requirements. On Linux on x86-64 TFF's wheel is installed as it is.
Elsewhere all of it is unpacked but the worker of its native context, which is a program for that
platform: a text that says so is in its place, because TFF cannot be imported without that file.
"""

import argparse
import compileall
import contextlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence

LOCK = 'requirements.lock'
DEVELOPMENT_LOCK = 'requirements-dev.lock'
GPU_LOCK = 'requirements-gpu.lock'
PYTHONS = ((3, 10), (3, 13))  # The oldest and the newest version that the lock is for.
TFF = 'tensorflow-federated'
WORKER = 'tensorflow_federated/data/worker_binary'
# The platform of TFF's wheel, and a Python that its metadata accept.
_WHEEL_OPTIONS = (
  '--only-binary=:all:',
  '--platform=manylinux_2_31_x86_64',
  '--python-version=3.11',
  '--implementation=py',
  '--abi=none',
)
_NO_WORKER = (
  "TensorFlow Federated's worker is a program for Linux on x86-64. Elsewhere this text is in its"
  ' place: use tff_adaptive.set_graph_context().\n'
)
# What is printed before the requirements.
_PIP_COMMAND = (
  '# python -m pip install --require-hashes --no-deps --ignore-requires-python -r THIS_FILE\n'
  '# tff-adaptive-environment installs this and what is not a package: it makes tf.keras Keras 2.\n'
)
_TEMPORARY = '.tff-adaptive-environment'  # In site-packages.
_HERE = pathlib.Path(__file__).resolve().parent


class InstallationError(Exception):
  """The installation failed; the message says why and what to do."""


def lock_file(name: str) -> pathlib.Path:
  """Returns the path of a lock: in the checkout, or where the installed wheel put it."""
  places = (_HERE.parents[1], pathlib.Path(sysconfig.get_path('data'), 'share', 'tff-adaptive'))
  for place in places:
    if (place / name).exists():
      return place / name
  raise InstallationError(
    f'{name} is neither in {places[0]} nor in {places[1]}: install tff-adaptive again, or use a'
    ' checkout.'
  )


def requirement_blocks(lock: str) -> list[str]:
  """Splits the text of a lock into its requirements, each with its hashes."""
  blocks: list[str] = []
  for line in lock.splitlines():
    if line.startswith('#') or not line.strip():
      continue
    if line[0].isspace():
      blocks[-1] += f'\n{line}'
    else:
      blocks.append(line)
  return blocks


def runs_tff_worker() -> bool:
  """Returns whether this is the platform of TFF's wheel, whose worker is a program."""
  return platform.system() == 'Linux' and platform.machine() == 'x86_64'


def install(lock: pathlib.Path) -> None:
  """Installs what a lock lists; see the module's docstring for TFF.

  Raises:
    InstallationError: pip failed.
  """
  blocks = requirement_blocks(lock.read_text(encoding='utf-8'))
  tff_blocks = [block for block in blocks if block.startswith(f'{TFF}==')]
  if runs_tff_worker():
    tff_blocks = []
  others = [block for block in blocks if block not in tff_blocks]
  with _temporary_folder() as folder:
    _pip_install(others, folder)
    if tff_blocks:
      _unpack_tff(tff_blocks, folder)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
  """A context with a new folder, which the next installation removes if this one is killed.

  One name does, because two installations at a time would destroy the environment anyway.
  """
  path = pathlib.Path(sysconfig.get_path('purelib'), _TEMPORARY)
  try:
    if path.exists():
      shutil.rmtree(path)
    path.mkdir(parents=True)
  except OSError as error:
    raise InstallationError(
      f'{path} cannot be written ({error.strerror}): use an environment of your own.'
    ) from None
  try:
    yield str(path)
  finally:
    shutil.rmtree(path, ignore_errors=True)


def _pip_install(blocks: Sequence[str], folder: str) -> None:
  file = pathlib.Path(folder, 'requirements.txt')
  file.write_text('\n'.join(blocks), encoding='utf-8')
  # Without --no-compile pip compiles with one processor.
  _pip('install', '--ignore-requires-python', '--no-compile', f'--requirement={file}')


def _unpack_tff(blocks: Sequence[str], folder: str) -> None:
  """Downloads TFF's wheel for its own platform and unpacks what runs on this one."""
  file = pathlib.Path(folder, 'tff.txt')
  file.write_text('\n'.join(blocks), encoding='utf-8')
  _pip('download', *_WHEEL_OPTIONS, f'--dest={folder}', f'--requirement={file}')
  (wheel,) = pathlib.Path(folder).glob('tensorflow_federated-*.whl')
  with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if name != WORKER]
    archive.extractall(sysconfig.get_path('purelib'), names)
  # Not executable, so that TFF's native context fails at once where a program forgets its check.
  stand_in = pathlib.Path(sysconfig.get_path('purelib'), WORKER)
  stand_in.parent.mkdir(parents=True, exist_ok=True)
  stand_in.write_text(_NO_WORKER, encoding='utf-8')


def _pip(verb: str, *options: str) -> None:
  _run_pip(verb, '--require-hashes', '--no-deps', *options)


def _run_pip(verb: str, *options: str) -> None:
  # Twice quiet: pip then prints errors only.
  command = [sys.executable, '-m', 'pip', '--quiet', '--quiet', '--disable-pip-version-check']
  command += ['--no-input', verb, *options]
  if subprocess.run(command, check=False).returncode != 0:
    raise InstallationError(
      f'pip {verb} failed: see the lines above; check the network connection and that 6 GB of disk'
      ' are free, and run this again.'
    )


def remove(names: Sequence[str]) -> None:
  """Uninstalls those of the named packages that are installed."""
  distributions = importlib.metadata.distributions()
  installed = {str(one.metadata['Name']).lower().replace('_', '-') for one in distributions}
  to_remove = [name for name in names if name in installed]
  if to_remove:
    _run_pip('uninstall', '--yes', *to_remove)


def use_cpu_build() -> None:
  """Installs the lock of `make env`, in place of other builds of TensorFlow.

  pip would leave them: the builds are packages of several names that have the same files. A real
  tensorflow-estimator would come before the stand-in, and fails with this TensorFlow.
  """
  lock = lock_file(LOCK)
  # Where TFF's worker runs, the lock has the smaller build for CPUs.
  other_build = 'tensorflow' if runs_tff_worker() else 'tensorflow-cpu'
  remove([other_build, 'tensorflow-estimator'])
  install(lock)
  write_site_files()


def write_site_files() -> None:
  """Writes into site-packages what stands in for a missing package and chooses Keras 2.

  TFF 0.87.0 needs Keras 2, which TensorFlow takes if TF_USE_LEGACY_KERAS is set when it is
  imported. A .pth file sets it at the start of each Python of this environment, unless it is set.
  It also sets TF_CPP_MIN_LOG_LEVEL, as the commands do: TensorFlow prints notes on the processor
  when it is imported, before a program of this package could say anything about them.
  The file also says that there is no module `keras.engine`, which Keras 3 does not have: looking
  for it, tensorflow-model-optimization would import all of Keras 3.
  """
  for file in sorted((_HERE / 'site').iterdir()):
    if file.is_file():
      shutil.copy(file, sysconfig.get_path('purelib'))


def compile_packages() -> None:
  """Compiles the installed packages with all processors; errors in unused files are ignored."""
  with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):
    compileall.compile_dir(sysconfig.get_path('purelib'), quiet=2, workers=0)


def use_gpu_build() -> None:
  """Installs TensorFlow's build with CUDA in place of the one for CPUs."""
  if not runs_tff_worker():
    raise InstallationError(
      "TensorFlow's build with CUDA is for Linux on x86-64, and this is"
      f' {platform.system()} on {platform.machine()}: train on the CPU.'
    )
  lock = lock_file(GPU_LOCK)
  remove(['tensorflow-cpu'])
  install(lock)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command; returns 0, or 2 if nothing could be installed."""
  parser = argparse.ArgumentParser(
    'tff-adaptive-environment',
    description='Installs the locked packages that tff-adaptive needs, TensorFlow Federated among'
    " them, into the environment of this command's Python (3.5 GB of disk), and chooses Keras 2"
    ' in it. Other versions of these packages in it are replaced.',
  )
  parser.add_argument(
    '--add',
    choices=('gpu', 'dev'),
    help="only add this to an environment that is made already: gpu (TensorFlow's build with CUDA"
    ' 12, 3 GB to fetch) or dev (tools of tests and documentation, in a checkout)',
  )
  parser.add_argument(
    '--requirements', action='store_true', help='print the requirements and install nothing'
  )
  parser.add_argument(
    '--system',
    action='store_true',
    help='install also into a Python outside of a virtual environment, such as that of an image',
  )
  options = parser.parse_args(arguments)
  try:
    _run(options)
  except InstallationError as error:
    sys.stderr.write(f'tff-adaptive-environment: {error}\n')
    return 2
  return 0


def _run(options: argparse.Namespace) -> None:
  if options.requirements:
    sys.stdout.write(_PIP_COMMAND + lock_file(LOCK).read_text(encoding='utf-8'))
    return
  if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
    raise InstallationError(
      f'{sys.executable} is Python {platform.python_version()}, and the locked packages are for'
      ' CPython 3.10 to 3.13: make a virtual environment with one of these.'
    )
  is_virtual = sys.prefix != sys.base_prefix or 'CONDA_PREFIX' in os.environ
  if not is_virtual and not options.system:
    raise InstallationError(
      f"{sys.executable} is not in a virtual environment: make one ('python -m venv NAME'), install"
      ' tff-adaptive in it, and run this there (in an image of a container give --system).'
    )
  if options.add == 'gpu':
    use_gpu_build()
  elif options.add == 'dev':
    install(lock_file(DEVELOPMENT_LOCK))
  else:
    use_cpu_build()
  compile_packages()


if __name__ == '__main__':
  sys.exit(main())
