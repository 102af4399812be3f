"""The tables of the experiment say what the runs' files say."""

import pytest

from research.experiments import real_clients_report as of
from tests.helpers import run_folders

HEADING = (
  'round,virtual_seconds,seconds_round,non_finite_clients,{0}accuracy'
  ',clients_train_{1}accuracy_worst_tenth,clients_unseen_{1}accuracy_mean'
)


def write(folder, algorithm, server, seed, accuracy, rounds=4, mean=False):
  """A run of four rounds of 10, 20, 30 and 40 virtual seconds, evaluated after the second."""
  settings = {
    **{'algorithm': algorithm, 'server_optimizer': server, 'seed': seed, 'rounds': 4},
    **{'clients_per_round': 10, 'speed_sigma': 1.0, 'bandwidth_sigma': 0.5},
    'client_learning_rate': 0.1,
  }
  folder.mkdir(parents=True)
  started = '2026-11-22T10:00:00'
  run_folders.write_config(folder, settings, started=started, versions={'python': '3.11'})
  names = ('inference_', 'inference_') if mean else ('validation_', '')
  lines = [HEADING.format(*names), '0,,,,0.1,,']
  lines += ['1,10,15,0,,,', f'2,20,15,0,{accuracy},,', '3,30,15,0,,,']
  lines += [f'4,40,15,0,{accuracy + 0.1:.3f},{accuracy / 2},{accuracy / 4}']
  (folder / 'metrics.csv').write_text('\n'.join(lines[: rounds + 2]) + '\n')


@pytest.fixture
def found(tmp_path):
  for seed, accuracy in ((0, 0.8), (1, 0.7)):
    name = f'seed={seed},algorithm=fed_avg'
    write(tmp_path / 'digits' / 'ideal' / 'sgd' / name, 'fed_avg', 'sgd', seed, accuracy)
  yogi = tmp_path / 'digits' / 'drop' / 'yogi'
  write(yogi / 'a', 'fed_yogi', 'yogi', 0, 0.2)
  write(yogi / 'b', 'ada_best', 'yogi', 0, 0.6, mean=True)
  write(yogi / 'c', 'scaffold', 'yogi', 0, 0.6, rounds=3)  # Not complete.
  return of.collect(str(tmp_path))


def test_the_tables_hold_means_over_the_seeds(found):
  text = of.report(*found)
  blocks = text.split('\n**')[1:]
  wanted = [
    ('accuracy on all', '| FedAvg | 85.0 ± 7.1 |  |', '| AdaBest x Yogi |  | 70.0 |'),
    ('accuracy of the worst', '| FedAvg | 37.5 ± 3.5 |  |', '| AdaBest x Yogi |  | 30.0 |'),
    ('mean accuracy of clients', '| FedAvg | 18.8 ± 1.8 |  |', '| AdaBest x Yogi |  | 15.0 |'),
    ('virtual seconds to 80 %', '| FedAvg | 65 ± 49 |  |', '| FedAvg x Yogi |  | never |'),
  ]
  assert len(blocks) == len(wanted) + 1
  assert blocks[-1].startswith('chosen with ideal clients')
  assert '| AdaBest x Yogi | 0.1 |' in blocks[-1]
  for block, (title, *lines) in zip(blocks, wanted):
    assert block.startswith(title)
    for line in ('|  | ideal | deadline, drop |', *lines):
      assert line in block
  assert '4 runs, 4 minutes' in text


def test_runs_that_were_begun_and_are_not_complete_are_counted(tmp_path):
  folder = tmp_path / 'digits' / 'drop' / 'sgd'
  for seed, rounds in ((0, 4), (1, 4), (2, 2)):
    write(folder / f'avg{seed}', 'fed_avg', 'sgd', seed, 0.5, rounds=rounds)
  write(tmp_path / 'digits' / 'ideal' / 'sgd' / 'a', 'scaffold', 'sgd', 0, 0.5, rounds=3)
  write(tmp_path / 'mnist' / 'ideal' / 'sgd' / 'a', 'fed_avg', 'sgd', 0, 0.5, rounds=3)
  text = of.report(*of.collect(str(tmp_path)))
  assert 'MNIST, alpha = 0.03: no run is complete.' in text
  assert '| FedAvg |  | 60.0 ± 0.0 (2 of 3) |' in text
  assert '| SCAFFOLD | none of 1 complete |  |' in text
  assert '| FedAvg |  | never (2 of 3 complete) |' in text


def test_the_figure_is_written(found, tmp_path):
  of.draw(str(tmp_path / 'made.png'), found[0])
  assert (tmp_path / 'made.png').stat().st_size > 5000
