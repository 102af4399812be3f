"""Scripts of sweeps: each run that they would start has settings that go together."""

import os
import pathlib
import re
import subprocess

import pytest

from scripts import sweep

SCRIPTS = ('founding_papers', 'fraction'), ('diloco', 'rates'), ('text', 'keras')


@pytest.mark.parametrize('script, more', SCRIPTS)
def test_the_settings_of_each_run_are_accepted(script, more, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(pathlib.Path(__file__).parents[2])  # Flagfiles are named from there.
  script = f'research/experiments/{script}.sh'
  command = ['sh', '-ec', 'sh $0 $1; sh $0 $1 $2', script, tmp_path, more]  # All, and one by name.
  environment = {**os.environ, 'PY': 'echo', 'RUNS': str(tmp_path / 'runs')}
  commands = subprocess.check_output(command, env=environment, text=True)
  commands = re.sub(r'(--grid=seed=\d+)[,\d]*', r'\1', commands)  # Any seed goes with the others.
  sweeps = [line.split()[1:] for line in commands.splitlines() if 'sweep.py' in line]
  for run in re.findall(r'(--flagfile=\S* .*--seed=.*) --output_dir=\S*(.*)', commands):
    sweeps.append(['--output_dir=out', '--grid=clip_norm=9', '--', *' '.join(run).split()])
  assert len(sweeps) > 9
  for arguments in sweeps:
    assert sweep.main(['sweep.py', '--dry_run', *arguments]) == 0, capsys.readouterr().err
  assert not (tmp_path / 'runs').exists()
