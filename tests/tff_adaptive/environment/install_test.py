"""What is installed, from which lock, and what stands in the place of what cannot run here."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import types
import typing
import zipfile
from collections.abc import Sequence

import pytest

from tests.helpers import killed
from tff_adaptive.environment import install

ROOT = pathlib.Path(__file__).parents[3]
LOCK = """\
# A comment of uv.
absl-py==2.5.1 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via
    #   -r requirements.in
tensorflow-cpu==2.21.0 ; platform_machine == 'x86_64' and sys_platform == 'linux' \\
    --hash=sha256:ba

tensorflow-federated==0.87.0 \\
    --hash=sha256:ca
tensorflow-privacy==0.9.0 \\
    --hash=sha256:da
"""
WORKER = b'\x7fELF, a program of another platform'


@pytest.fixture
def purelib(tmp_path, monkeypatch):
  """The folder that takes the place of site-packages."""
  folder = tmp_path / 'site-packages'
  folder.mkdir()
  real = sysconfig.get_path
  monkeypatch.setattr(
    sysconfig, 'get_path', lambda name: str(folder) if name == 'purelib' else real(name)
  )
  return folder


@pytest.fixture
def pip(monkeypatch):
  """The calls of pip, as (arguments, text of the requirements); a download leaves a small wheel."""
  calls = []

  def run(command, check):
    assert command[:3] == [sys.executable, '-m', 'pip']
    assert check is False
    values = dict(a.split('=', 1) for a in command if a.startswith('--') and '=' in a)
    file = values.get('--requirement')
    calls.append((command[3:], pathlib.Path(file).read_text() if file else ''))
    if 'download' in command:
      wheel = pathlib.Path(values['--dest'], 'tensorflow_federated-0.87.0-py3-none-linux.whl')
      with zipfile.ZipFile(wheel, 'w') as archive:
        archive.writestr('tensorflow_federated/__init__.py', 'x = 1\n')
        archive.writestr('tensorflow_federated/data/worker_binary', WORKER)
        archive.writestr('tensorflow_federated-0.87.0.dist-info/METADATA', 'Version: 0.87.0\n')
    return types.SimpleNamespace(returncode=0)

  monkeypatch.setattr(subprocess, 'run', run)
  return calls


@pytest.fixture
def platform_is(monkeypatch):
  """Sets the system and the machine that this seems to be."""

  def become(system, machine):
    monkeypatch.setattr(install.platform, 'system', lambda: system)
    monkeypatch.setattr(install.platform, 'machine', lambda: machine)

  return become


@pytest.fixture
def lock(tmp_path):
  path = tmp_path / 'requirements.lock'
  path.write_text(LOCK)
  return path


def test_a_lock_is_split_into_requirements_with_their_hashes():
  blocks = install.requirement_blocks(LOCK)
  names = ['absl-py==2.5.1', 'tensorflow-cpu==2.21.0', 'tensorflow-federated==0.87.0']
  assert [b.split()[0] for b in blocks] == [*names, 'tensorflow-privacy==0.9.0']
  assert re.findall('sha256:(..)', blocks[0]) == ['aa', 'ab']
  for name in ('requirements.lock', 'requirements-dev.lock', 'requirements-gpu.lock'):
    text = (ROOT / name).read_text()
    blocks = install.requirement_blocks(text)
    assert len(blocks) == len(re.findall(r'^[a-z0-9._-]+==', text, re.MULTILINE)) > 20
    assert all('--hash=sha256:' in block for block in blocks)


@pytest.mark.parametrize('system, machine', [('Linux', 'aarch64'), ('Darwin', 'arm64')])
def test_where_the_worker_cannot_run_a_text_stands_in_its_place(
  system, machine, platform_is, lock, pip, purelib
):
  platform_is(system, machine)
  install.install(lock)
  (installed, others), (downloaded, tff) = pip
  assert {'install', '--require-hashes', '--no-deps', '--ignore-requires-python'} <= {*installed}
  assert 'absl-py==2.5.1' in others
  assert 'tensorflow-privacy==0.9.0' in others
  assert 'tensorflow-federated' not in others
  # The wheel's own platform, and a Python that its metadata accept.
  assert {'download', '--require-hashes', '--no-deps', '--python-version=3.11'} <= {*downloaded}
  assert '--platform=manylinux_2_31_x86_64' in downloaded
  assert tff.split() == ['tensorflow-federated==0.87.0', '\\', '--hash=sha256:ca']
  assert (purelib / 'tensorflow_federated' / '__init__.py').read_text() == 'x = 1\n'
  assert (purelib / 'tensorflow_federated-0.87.0.dist-info' / 'METADATA').exists()
  # TFF cannot be imported without this file, and would wait forever for a program that ends.
  worker = purelib / install.WORKER
  assert 'program for Linux on x86-64' in worker.read_text()
  assert not worker.stat().st_mode & 0o111
  with pytest.raises(PermissionError):
    subprocess.Popen([worker])


def test_on_linux_on_x86_64_the_wheel_of_tff_is_installed_as_it_is(platform_is, lock, pip, purelib):
  platform_is('Linux', 'x86_64')
  install.install(lock)
  [(installed, requirements)] = pip
  assert 'install' in installed
  assert install.requirement_blocks(requirements) == install.requirement_blocks(LOCK)
  assert os.listdir(purelib) == []


def test_what_a_killed_installation_left_is_removed_by_the_next(
  platform_is, lock, pip, purelib, tmp_path
):
  platform_is('Linux', 'x86_64')
  left = tmp_path / 'temporary'
  left.mkdir()
  with killed.temporary_folders_in(left):
    with killed.before_folders_are_removed():
      install.install(lock)
    assert os.listdir(left) + os.listdir(purelib)
    install.install(lock)
  assert os.listdir(left) + os.listdir(purelib) == []
  assert len(pip) == 2


def test_a_folder_that_cannot_be_written_is_named(platform_is, lock, pip, purelib):
  platform_is('Linux', 'x86_64')
  purelib.rmdir()
  purelib.write_text('no folder')
  with pytest.raises(install.InstallationError, match='cannot be written') as error:
    install.install(lock)
  assert '\n' not in str(error.value)
  assert pip == []


class Machine(typing.NamedTuple):
  """Packages that are present, and those of them that go before others are added."""

  present: Sequence[str]
  removed: Sequence[str] = ()
  add: str = ''
  system: str = 'Linux'
  machine: str = 'x86_64'


@pytest.mark.parametrize(
  'given',
  [
    Machine(present=['tensorflow', 'numpy'], removed=['tensorflow']),
    Machine(present=['tensorflow_cpu', 'tensorflow_estimator'], removed=['tensorflow-estimator']),
    Machine(
      add='gpu', present=['tensorflow-cpu', 'tensorflow-estimator'], removed=['tensorflow-cpu']
    ),
    Machine(system='Darwin', machine='arm64', present=['tensorflow']),
    Machine(add='dev', present=['tensorflow', 'tensorflow-cpu']),
  ],
)
def test_another_build_of_tensorflow_goes_first(given, platform_is, pip, purelib, monkeypatch):
  """Two packages with the same files: what pip installed second would be half removed later."""
  platform_is(given.system, given.machine)
  installed = [types.SimpleNamespace(metadata={'Name': name}) for name in given.present]
  monkeypatch.setattr(install.importlib.metadata, 'distributions', lambda: installed)
  monkeypatch.setattr(install, 'compile_packages', lambda: None)
  options = [f'--add={given.add}'] if given.add else []
  assert install.main([*options, '--system']) == 0
  verbs = []
  for arguments, _ in pip:
    verbs.append(next(a for a in arguments if not a.startswith('-')))
  number = len(given.removed)
  assert verbs[: number + 1] == ['uninstall'] * number + ['install']
  for arguments, _ in pip[:number]:
    assert arguments[-1:] == given.removed
  assert (purelib / 'tensorflow_estimator.py').exists() == (not given.add)


@pytest.fixture
def refused(capsys, monkeypatch):
  """Runs the command, which refuses in one line; returns the line."""
  monkeypatch.setattr(sys, 'base_prefix', '/another')  # As in a virtual environment.

  def run(*arguments):
    assert install.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith('tff-adaptive-environment: ')
    assert error.count('\n') == 1
    return error

  return run


def test_the_systems_own_python_is_refused(monkeypatch, pip, refused):
  monkeypatch.setattr(sys, 'base_prefix', sys.prefix)
  monkeypatch.delenv('CONDA_PREFIX', raising=False)
  assert 'python -m venv NAME' in refused()
  assert pip == []


def test_cuda_on_another_platform_is_refused(pip, platform_is, refused):
  platform_is('Darwin', 'arm64')
  assert 'with CUDA is for Linux on x86-64, and this is Darwin on arm64' in refused('--add=gpu')
  assert pip == []


def test_another_python_is_refused(monkeypatch, pip, platform_is, refused):
  platform_is('Darwin', 'arm64')
  for version in ((3, 9, 18), (3, 14, 0)):
    monkeypatch.setattr(sys, 'version_info', version)
    assert 'CPython 3.10 to 3.13' in refused()
  assert pip == []


def test_what_pip_cannot_install_is_said_in_one_line(monkeypatch, refused):
  monkeypatch.setattr(install, 'remove', lambda names: None)
  failed = types.SimpleNamespace(returncode=1)
  monkeypatch.setattr(subprocess, 'run', lambda command, check: failed)
  assert 'pip install failed' in refused()


def test_a_lock_that_is_nowhere_is_named(monkeypatch, refused):
  monkeypatch.setattr(install, 'remove', lambda names: None)
  monkeypatch.setattr(install, '_HERE', pathlib.Path('/nowhere/a/b'))
  assert 'requirements-dev.lock is neither in /nowhere nor in' in refused('--add=dev')


def test_requirements_are_printed_and_nothing_is_installed(capsys, pip):
  assert install.main(['--requirements']) == 0
  printed = capsys.readouterr().out
  assert printed.startswith('# python -m pip install --require-hashes --no-deps --ignore-requires')
  assert printed.endswith((ROOT / 'requirements.lock').read_text())
  assert pip == []


_OF_TENSORFLOW = ('TF_USE_LEGACY_KERAS', 'TF_CPP_MIN_LOG_LEVEL')


def run(program, folder, **variables):
  """What a Python prints that has the files of `write_site_files` in its site-packages."""
  start = f'import site; site.addsitedir({str(folder)!r})\n'
  environment = {k: v for k, v in os.environ.items() if k not in _OF_TENSORFLOW}
  # -I -S: without the files of the environment of the tests.
  return subprocess.run(
    [sys.executable, '-I', '-S', '-c', start + program],
    env={**environment, **variables},
    capture_output=True,
    text=True,
    check=True,
  ).stdout


@pytest.mark.parametrize(
  'name, value', [('TF_USE_LEGACY_KERAS', '1'), ('TF_CPP_MIN_LOG_LEVEL', '3')]
)
def test_an_environment_chooses_keras_2_and_a_quiet_tensorflow_unless_the_user_chose(
  purelib, name, value
):
  install.write_site_files()
  program = f'import os; print(os.environ[{name!r}])'
  assert run(program, purelib) == f'{value}\n'
  assert run(program, purelib, **{name: '0'}) == '0\n'


def test_an_environment_looks_for_no_module_of_keras_2_in_keras_3(purelib):
  (purelib / 'keras').mkdir()
  (purelib / 'keras/__init__.py').touch()
  install.write_site_files()
  program = """
import sys
try:
  from keras.engine import base_layer
except ImportError:
  print('keras' in sys.modules)
import keras
print(keras.__path__)
"""
  assert run(program, purelib) == f'False\n{[str(purelib / "keras")]}\n'


def test_the_stand_in_for_estimators_is_imported_and_says_so_when_it_is_used(purelib):
  install.write_site_files()
  program = """
import tensorflow_estimator
from tensorflow_estimator.python.estimator import estimator, mode_keys
from tensorflow_estimator.python.estimator.canned import head as head_lib
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys

class Own(estimator.Estimator):
  pass

try:
  Own(model_fn=None)
except NotImplementedError as error:
  print(error)
"""
  printed = run(program, purelib)
  assert printed.startswith('Own: TensorFlow has no estimators since 2.16')
  assert 'use a Keras model' in printed
