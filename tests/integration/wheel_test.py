"""The wheel has every file, and its commands run where nothing else of the project is."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

import tff_adaptive
from scripts import _entry

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_is_whole_and_works_in_an_empty_environment(tmp_path):
  source, environment, files = tmp_path / 'source', tmp_path / 'environment', set()
  without = shutil.ignore_patterns('__pycache__', 'env')
  for folder in ('tff_adaptive', 'tff_adaptive_tasks', 'scripts'):
    shutil.copytree(ROOT / folder, source / folder, ignore=without)
    files |= {str(p.relative_to(source)) for p in (source / folder).rglob('*') if p.is_file()}
  for name in ('setup.py', 'pyproject.toml', 'README.md', 'LICENSE'):
    shutil.copy(ROOT / name, source)
  pip, alone = (sys.executable, '-m', 'pip', '--isolated', '-q'), ('--no-deps', '--no-index')
  build = *pip, 'wheel', *alone, '--no-build-isolation', f'--wheel-dir={tmp_path}', source
  subprocess.run(build, check=True)
  [wheel] = tmp_path.glob(f'tff_adaptive-{tff_adaptive.__version__}-*.whl')
  packed = {name for name in zipfile.ZipFile(wheel).namelist() if '.dist-info/' not in name}
  assert {name.replace('tff_adaptive_scripts/', 'scripts/') for name in packed} == files

  subprocess.run([sys.executable, '-m', 'venv', '--without-pip', environment], check=True)
  python = environment / 'bin' / 'python'
  subprocess.run([*pip, f'--python={python}', 'install', *alone, wheel], check=True)
  # TensorFlow and the others come from where the tests run, as their download takes minutes.
  [packages] = environment.glob('lib/python*/site-packages')
  (packages / 'others.pth').write_text(sysconfig.get_path('purelib'))
  own = {'cwd': tmp_path, 'env': {**os.environ, 'PYTHONPATH': ''}, 'check': True}  # No checkout.
  for name in _entry.NAMES.values():
    helped = subprocess.run([python.with_name(name), '--help'], stdout=subprocess.PIPE, **own)
    assert f'{name} '.encode() in helped.stdout
  train = [python.with_name('tff-adaptive-train'), '--rounds=1', '--output_dir=run']
  subprocess.run(train, **own)
  assert '"git_revision": null' in (tmp_path / 'run' / 'config.json').read_text()
