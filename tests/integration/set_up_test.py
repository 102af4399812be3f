"""scripts/env/setup_env.sh: which system and Python it takes, and what it does a second time.

It runs in a small copy of the checkout. `uname` and the Pythons are shell scripts, and nothing else
is on PATH but what the script needs of the system.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path('scripts', 'env', 'setup_env.sh')
TOOLS = ('cat', 'cksum', 'cp', 'dirname', 'flock', 'mkdir', 'readlink', 'rm', 'sed', 'sh')
PLACES = '/opt/python /usr/local /opt /opt/homebrew'  # Where the script looks besides PATH.
LOCKS = ('requirements.lock', 'requirements-dev.lock', 'requirements-gpu.lock')
# Answers what the script asks a Python, makes a .venv, and writes every other call into a file.
PYTHON = """\
#!/bin/sh
case "$*" in
  *python_implementation*) echo '{implementation} {version}' ;;
  *sys.maxsize*) exit {is_small} ;;
  *ensurepip*) exit {lacks_venv} ;;
  '-m venv .venv') mkdir .venv/bin && cp "$0" .venv/bin/python ;;
  '-c ') ;;
  *) echo "$*" >>calls && test ! -e failing ;;
esac
"""


class Checkout:
  """A copy of what the script reads, with a folder that is all of PATH."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder / 'checkout'
    self.bin = folder / 'bin'
    self.bin.mkdir()
    for tool in TOOLS:
      path = shutil.which(tool)
      if path is not None:  # macOS has no flock.
        (self.bin / tool).symlink_to(path)
    site = self.folder / 'tff_adaptive' / 'environment' / 'site'
    site.mkdir(parents=True)
    (site / 'some.pth').write_text('')
    (self.folder / SCRIPT).parent.mkdir(parents=True)
    script = (ROOT / SCRIPT).read_text()
    assert PLACES in script
    (self.folder / SCRIPT).write_text(script.replace(PLACES, str(folder / 'places')))
    others = ('setup.py', 'pyproject.toml', 'tff_adaptive/_version.py')
    for name in (*LOCKS, *others, 'tff_adaptive/environment/install.py'):
      (self.folder / name).write_text(name)
    self.add_program('uname', '#!/bin/sh\necho Linux x86_64\n')

  @property
  def venv(self) -> pathlib.Path:
    return self.folder / '.venv'

  def add_program(self, name: str, text: str) -> pathlib.Path:
    path = self.bin / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path

  def add_python(self, name, version, implementation='CPython', is_small=0, lacks_venv=0):
    return self.add_program(
      name,
      PYTHON.format(
        version=version, implementation=implementation, is_small=is_small, lacks_venv=lacks_venv
      ),
    )

  def set_up(self, *options: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
      ['sh', str(SCRIPT), *options],
      cwd=self.folder,
      env={'PATH': str(self.bin), 'HOME': str(self.bin), **variables},
      capture_output=True,
      text=True,
    )

  def calls(self) -> list[str]:
    """What was called since the last time, without the options of pip."""
    path = self.folder / 'calls'
    if path.exists():
      lines = path.read_text().splitlines()
    else:
      lines = []
    path.unlink(missing_ok=True)
    return [line.partition(' --quiet')[0] for line in lines]

  def refused(self, *options: str, **variables: str) -> str:
    """The one line with which a set-up is refused; nothing was called or made."""
    ended = self.set_up(*options, **variables)
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith('set-up: ')
    assert ended.stderr.count('\n') == 1, ended.stderr
    assert self.calls() == []
    return ended.stderr


@pytest.fixture
def checkout(tmp_path):
  return Checkout(tmp_path)


INSTALL = 'tff_adaptive/environment/install.py'
WHOLE = [INSTALL, '-m pip']  # The lock, then this package.


@pytest.mark.parametrize('system', ['Linux x86_64', 'Linux aarch64', 'Darwin arm64'])
def test_systems_for_which_there_are_packages(checkout, system):
  checkout.add_program('uname', f'#!/bin/sh\ntest "$*" = -sm && echo {system}\n')
  checkout.add_python('python3.12', '3.12.4')
  ended = checkout.set_up()
  assert ended.returncode == 0, ended.stderr
  assert checkout.calls() == WHOLE
  assert ended.stderr.splitlines()[-1] == 'set-up: done.'
  assert ('--engine=native cannot run' in ended.stderr) == (system != 'Linux x86_64')


@pytest.mark.parametrize(
  'system', ['Darwin x86_64', 'Linux armv7l', 'Linux ppc64le', 'FreeBSD amd64', 'MINGW64_NT x86_64']
)
def test_other_systems_are_refused(checkout, system):
  checkout.add_program('uname', f'#!/bin/sh\necho {system}\n')
  checkout.add_python('python3.12', '3.12.4')
  assert f'this is {system}' in checkout.refused()
  assert not checkout.venv.exists()


@pytest.mark.parametrize('option', [(), ('--dev',), ('--gpu',)])
def test_a_linked_venv_is_refused_and_not_touched(checkout, tmp_path, option):
  """An interrupted `make` in a checkout with such a link deleted another one's environment."""
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'installing').touch()
  checkout.venv.symlink_to(other)
  checkout.add_python('python3.12', '3.12.4')
  said = checkout.refused(*option)
  assert f'.venv is a link (to {other})' in said
  assert "'rm .venv'" in said
  assert os.listdir(other) == ['installing']
  assert checkout.venv.is_symlink()


@pytest.mark.parametrize(
  'present, version',
  [
    (['3.9.18', '3.10.13', '3.11.7', '3.12.1', '3.13.0', '3.14.0'], '3.12.1'),
    (['3.9.18', '3.10.13', '3.11.7', '3.13.0', '3.14.0'], '3.13.0'),
    (['3.10.13', '3.11.7', '3.14.0'], '3.11.7'),
    (['3.10.13', '3.14.0'], '3.10.13'),
  ],
)
def test_the_python_that_is_taken_is_named(checkout, present, version):
  for full in present:
    checkout.add_python(f'python{full.rpartition(".")[0]}', full)
  # A version manager's shim that names a version which it does not have, and other Pythons.
  checkout.add_program('python3', '#!/bin/sh\necho no such version >&2; exit 127\n')
  ended = checkout.set_up()
  assert ended.returncode == 0, ended.stderr
  name = f'python{version.rpartition(".")[0]}'
  assert f'making .venv with {name} (CPython {version}).' in ended.stderr
  assert f"'CPython {version}'" in (checkout.venv / 'bin' / 'python').read_text()


def test_pythons_that_are_not_usable_are_passed_over(checkout, tmp_path):
  checkout.add_program('python3.12', '#!/bin/sh\nexit 127\n')  # A shim that does not run.
  checkout.add_python('python3.13', '3.13.0', implementation='PyPy')
  checkout.add_python('python3.11', '3.11.7', is_small=1)  # Of 32 bits.
  checkout.add_python('python3.10', '3.10.13', lacks_venv=1)
  checkout.add_python('python3', '3.14.0')
  said = checkout.refused()
  assert 'python3.10 is CPython 3.10 but lacks the module ensurepip' in said
  assert 'apt-get install python3.10-venv' in said
  # In the folder of a version manager, and of uv, which fetches one if there is no other.
  fetched = checkout.add_python('fetched/python', '3.12.9')
  checkout.add_program('uv', f'#!/bin/sh\ntest "$2" = install || echo {fetched}\n')
  assert f'making .venv with {fetched} (CPython 3.12.9).' in checkout.set_up().stderr
  shutil.rmtree(checkout.venv)
  managed = checkout.add_python('versions/3.13.5/bin/python', '3.13.5')
  ended = checkout.set_up(PYENV_ROOT=str(checkout.bin))
  assert f'making .venv with {managed} (CPython 3.13.5).' in ended.stderr


def test_without_a_python_the_ones_seen_are_named(checkout):
  assert 'no Python at all' in checkout.refused()
  checkout.add_python('python3', '3.9.2')
  checkout.add_python('python', '2.7.18')
  said = checkout.refused()
  assert 'python3 is CPython 3.9.2, python is CPython 2.7.18' in said
  assert '3.10, 3.11, 3.12 or 3.13 is needed' in said


def test_the_user_chooses_the_python(checkout):
  checkout.add_python('python3.12', '3.12.4')
  python = checkout.add_python('own/python', '3.10.13')
  old = checkout.add_python('old/python', '3.9.2')
  assert f'PYTHON={old} is not CPython 3.10 to 3.13 (CPython 3.9.2)' in checkout.refused(
    PYTHON=str(old)
  )
  assert '(it does not run)' in checkout.refused(PYTHON='/no/such/python')
  assert (
    f'making .venv with {python} (CPython 3.10.13)' in checkout.set_up(PYTHON=str(python)).stderr
  )


def test_what_is_done_is_not_done_again(checkout):
  checkout.add_python('python3.12', '3.12.4')
  assert checkout.set_up().returncode == 0
  assert checkout.calls() == WHOLE
  for options, expected in (
    ([], []),
    (['--dev'], [f'{INSTALL} --add=dev']),
    (['--dev'], []),
    (['--gpu'], [f'{INSTALL} --add=gpu']),
    (['--gpu'], []),
    ([], []),
  ):
    assert checkout.set_up(*options).returncode == 0
    assert checkout.calls() == expected
  # Another version of this package is installed into the same environment, with the build for CPUs.
  (checkout.folder / 'setup.py').write_text('another')
  (checkout.venv / 'mark').touch()
  ended = checkout.set_up('--dev')
  assert checkout.calls() == [*WHOLE, f'{INSTALL} --add=dev']
  assert "'make env-gpu' installs it again" in ended.stderr
  assert (checkout.venv / 'mark').exists()
  # Packages of another lock would stay beside the new ones.
  (checkout.folder / LOCKS[0]).write_text('another')
  assert 'another requirements.lock: beginning again' in checkout.set_up().stderr
  assert checkout.calls() == WHOLE
  assert not (checkout.venv / 'mark').exists()
  assert "unknown option '--cpu'" in checkout.refused('--cpu')


@pytest.mark.parametrize('option, is_redone', [('', True), ('--gpu', True), ('--dev', False)])
def test_an_installation_that_failed_is_redone(checkout, option, is_redone):
  """Of --gpu too, as it removes one build of TensorFlow before the other is there."""
  checkout.add_python('python3.12', '3.12.4')
  options = [option] if option else []
  if options:
    assert checkout.set_up().returncode == 0
  (checkout.folder / 'failing').touch()
  assert checkout.set_up(*options).returncode == 1
  (checkout.folder / 'failing').unlink()
  checkout.calls()
  ended = checkout.set_up()
  assert ended.returncode == 0
  assert ('interrupted: beginning again' in ended.stderr) == is_redone
  assert checkout.calls() == (WHOLE if is_redone else [])
