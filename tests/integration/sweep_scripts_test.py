"""Scripts of sweeps: each run that they would start has settings that go together."""

import os
import pathlib
import re
import subprocess

import pytest

from scripts import sweep

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize('script, more', [('founding_papers', 'fraction'), ('diloco', 'rates')])
def test_the_settings_of_each_run_are_accepted(script, more, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(ROOT)  # Flagfiles are named from there.
  command = ['sh', f'research/experiments/{script}.sh', str(tmp_path)]
  environment = {**os.environ, 'PY': 'echo', 'RUNS': str(tmp_path / 'runs')}
  shown = ''.join(
    subprocess.check_output([*command, *names], env=environment, text=True)
    for names in ([], [more])  # What is made by default, and one by its name.
  )
  shown = re.sub(r'(--grid=seed=\d+)[,\d]*', r'\1', shown)  # Any seed goes with the others.
  sweeps = [line.split()[1:] for line in shown.splitlines() if 'sweep.py' in line]
  assert len(sweeps) > 9
  for arguments in sweeps:
    assert sweep.main(['sweep.py', '--dry_run', *arguments]) == 0, capsys.readouterr().err
  assert not (tmp_path / 'runs').exists()
