"""scripts/replay.py: a client's steps from the folder of a run that train.py made."""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from scripts import replay, train
from scripts.cli import records, resolve
from tests.helpers import fakes
from tff_adaptive import runs
from tff_adaptive.runs import config as config_lib
from tff_adaptive.training import cohorts

TASK = ['--task=least_squares', '--task_option=num_clients=4', '--algorithm=scaffold']
FLAGS = [*TASK, '--rounds=3', '--clients_per_round=2', '--rounds_per_checkpoint=1']
LEDGER = ['--ledger', '--full_ledger']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = str(tmp_path_factory.mktemp('runs') / 'run')
  with fakes.no_figures():
    assert train.main(['train.py', *FLAGS, *LEDGER, '--quiet', f'--output_dir={folder}']) == 0
  return folder


def test_the_steps_of_a_client_are_those_of_the_run(folder, tmp_path, capsys):
  ledger = runs.load_run(folder).ledger
  row = ledger[ledger['round'] == 3].iloc[0]
  output = tmp_path / 'steps.csv'
  command = ['replay.py', folder, '--round=3', f'--client={row["client"]}']
  assert replay.main([*command, f'--output={output}']) == 0
  steps = pd.read_csv(output)
  assert len(steps) == row['steps']
  assert steps['distance'].iloc[-1] == pytest.approx(row['update_norm'], rel=1e-6)
  assert replay.main([*command, '--eager']) == 0
  printed = capsys.readouterr().out.splitlines()
  last = [float(cell) for cell in printed[-1].strip('| ').split('|')]
  np.testing.assert_allclose(last, steps.iloc[-1], rtol=1e-4)


def test_a_run_that_repeats_another_one_is_made_again_with_its_flags(folder, capsys):
  config = config_lib.read(folder)
  first = replay.asked_for(folder, config)
  repeats = {**config, 'command': ['train.py', f'--config={folder}', '--output_dir=other']}
  again = replay.asked_for('other', repeats)
  assert again['rounds'] == 3
  for settings in (first, again):
    assert resolve.resolve(settings).flat()['task'] == 'least_squares'
  changed = records.of(resolve.resolve(again)).refused_changes(config)
  assert changed == records.of(resolve.resolve(first)).refused_changes(config) == []
  of_program = {**config, 'settings': {'task': 'digits', 'rounds': 3}}
  with pytest.raises(ValueError, match='by a program on a task of its own: call training'):
    replay.asked_for('other', of_program)


def test_bad_input_is_one_line(folder, tmp_path, capsys):
  for arguments, message in (
    ([folder, '--round=2'], 'give --round and --client'),
    ([folder, '--round=7', '--client=x'], 'has done 3 rounds; give a round from 1 to 3'),
    ([folder, '--round=2', '--client=x'], "client 'x' did not take part in round 2"),
    ([str(tmp_path), '--round=2', '--client=x'], 'it has no config.json'),
  ):
    assert replay.main(['replay.py', *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith('replay.py: ')


def test_the_guide_replays_a_client_that_took_part_in_the_round():
  text = (pathlib.Path(__file__).parents[2] / 'docs/guide/ledger.md').read_text(encoding='utf-8')
  number, client = re.search(r'--round=(\d+) --client=(\S+)', text).groups()
  of_run = resolve.resolve(algorithm='scaffold')
  ids = tasks.load(of_run.what.task).train.client_ids
  size = of_run.training.clients_per_round
  drawn = cohorts.sample(of_run.what.seed, int(number), len(ids), size)
  assert client in {ids[position] for position in drawn}
  assert f'--trace_client={client} ' in text
