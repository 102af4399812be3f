"""The wheel has every file, and its commands run where nothing else of the project is."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

import tff_adaptive
from scripts import _entry

ROOT = pathlib.Path(__file__).parents[2]
LOCKS = ('requirements.lock', 'requirements-gpu.lock')
STORED_ROWS = ('bench/rows.csv', 'bench_data/rows.csv')
SITE_FILES = ('tensorflow_estimator.py', 'tff_adaptive_environment.pth')


def _check_that_it_says_what_is_missing(python, folder):
  """Runs installed commands in an environment without TFF, without even what pip would install."""

  def run(name, *arguments):
    return subprocess.run(
      [python.with_name(name), *arguments],
      cwd=folder,
      env={**os.environ, 'PYTHONPATH': ''},
      capture_output=True,
      text=True,
    )

  for name in _entry.NAMES.values():
    ended = run(name, '--help')
    assert (ended.returncode, ended.stdout) == (2, '')
    assert ended.stderr.startswith(f'{name}: {python} has no ')
    assert ended.stderr.count('\n') == 1
    assert 'tff-adaptive-environment' in ended.stderr
  version = run('tff-adaptive-train', '--version')
  assert (version.returncode, version.stdout) == (0, f'tff-adaptive {tff_adaptive.__version__}\n')
  lock = (ROOT / 'requirements.lock').read_text(encoding='utf-8')
  for name in ('tff-adaptive-train', 'tff-adaptive-environment'):
    printed = run(name, '--requirements')
    assert printed.returncode == 0
    assert printed.stdout.endswith(lock)


@pytest.mark.slow
def test_the_wheel_is_whole_and_works_in_an_empty_environment(tmp_path):
  source = tmp_path / 'source'
  environment = tmp_path / 'environment'
  files = set()
  without = shutil.ignore_patterns('__pycache__', 'env')
  for folder in ('tff_adaptive', 'tff_adaptive_tasks', 'tff_adaptive_scripts'):
    shutil.copytree(ROOT / folder, source / folder, ignore=without)
    files |= {str(p.relative_to(source)) for p in (source / folder).rglob('*') if p.is_file()}
  for name in ('setup.py', 'pyproject.toml', 'README.md', 'LICENSE', *LOCKS):
    shutil.copy(ROOT / name, source)
  for name in STORED_ROWS:
    (source / 'results' / name).parent.mkdir(parents=True)
    shutil.copy(ROOT / 'results' / name, source / 'results' / name)
  pip = (sys.executable, '-m', 'pip', '--isolated', '-q')
  alone = ('--no-deps', '--no-index')
  build = *pip, 'wheel', *alone, '--no-build-isolation', f'--wheel-dir={tmp_path}', source
  subprocess.run(build, check=True)
  [wheel] = tmp_path.glob(f'tff_adaptive-{tff_adaptive.__version__}-*.whl')
  names = zipfile.ZipFile(wheel).namelist()
  packed = {name for name in names if '.dist-info/' not in name}
  [metadata] = [name for name in names if name.endswith('.dist-info/METADATA')]
  described = zipfile.ZipFile(wheel).read(metadata).decode()
  assert re.search('^Requires-Dist: jupyterlab ?; extra == .notebooks.$', described, re.MULTILINE)
  data = f'tff_adaptive-{tff_adaptive.__version__}.data/data/share/tff-adaptive'
  shared = {f'{data}/{name}' for name in (*LOCKS, *STORED_ROWS)}
  assert shared <= packed
  packed -= shared
  assert {f'tff_adaptive/environment/site/{name}' for name in SITE_FILES} <= packed
  assert packed == files

  subprocess.run([sys.executable, '-m', 'venv', '--without-pip', environment], check=True)
  python = environment / 'bin' / 'python'
  subprocess.run([*pip, f'--python={python}', 'install', *alone, wheel], check=True)
  _check_that_it_says_what_is_missing(python, tmp_path)
  # TensorFlow and the others come from where the tests run, as their download takes minutes.
  [packages] = environment.glob('lib/python*/site-packages')
  # As a site folder, whose own .pth files count: setuptools brings distutils by one.
  others = sysconfig.get_path('purelib')
  (packages / 'others.pth').write_text(f'import site; site.addsitedir({others!r})\n')
  options = {
    'cwd': tmp_path,
    'env': {**os.environ, 'PYTHONPATH': ''},
    'check': True,
  }  # No checkout.
  for name in _entry.NAMES.values():
    helped = subprocess.run([python.with_name(name), '--help'], stdout=subprocess.PIPE, **options)
    assert f'{name} '.encode() in helped.stdout
  listed = [python.with_name('tff-adaptive-bench'), '--list']
  listed = subprocess.run(listed, stdout=subprocess.PIPE, text=True, **options).stdout
  texts = [(ROOT / 'results' / name).read_text(encoding='utf-8') for name in STORED_ROWS]
  assert f'fed_avg: FedAvg, {sum(text.count(",fed_avg,") for text in texts)} rows\n' in listed
  train = [python.with_name('tff-adaptive-train'), '--rounds=1', '--output_dir=run']
  subprocess.run(train, **options)
  assert '"git_revision": null' in (tmp_path / 'run' / 'config.json').read_text()
