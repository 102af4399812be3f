"""beside_pfl.py: rounds in turn, accuracies, a report; without the real pfl."""

import csv
from typing import ClassVar

import numpy as np
import pytest

from research.benchmarks import children, peer_environments
from research.experiments import beside_pfl

_PEER = peer_environments.Peer


class _Child:
  """Answers at once: this toolkit takes 0.5 s a round, pfl-research 1 s."""

  asked: ClassVar = []

  def __init__(self, workload, variant, folder):
    assert workload == 'cifar10_iid'
    with np.load(f'{folder}/cifar10.npz') as file:
      self.images = {name: file[name] for name in file.files}
    self.variant = variant
    self.rounds = 0

  def ask(self, request):
    self.asked.append((self.variant, request))
    self.rounds += request == 'round'
    if request == 'accuracy':
      return {'accuracy': self.rounds / 100}
    return {'seconds': 0.5 if self.variant == 'ours_graph' else 1.0}

  def end(self):
    self.asked.append((self.variant, 'end'))


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Runs the command with flags, and children that answer at once, on few images."""
  rng = np.random.default_rng(0)
  arrays = {f'x_{s}': rng.integers(0, 256, (n, 32, 32, 3), np.uint8) for s, n in SIZES.items()}
  arrays |= {f'y_{s}': rng.integers(0, 10, n) for s, n in SIZES.items()}
  np.savez(tmp_path / 'cifar10.npz', **arrays)
  monkeypatch.setattr(children, 'Child', _Child)
  monkeypatch.setattr(_Child, 'asked', [])
  monkeypatch.setattr(_PEER, 'missing', lambda self, workload: None)
  monkeypatch.setattr(_PEER, 'version', lambda self: '0.6.0')
  results = tmp_path / 'results'

  def main(*flags):
    flags = [f'--data_dir={tmp_path}', f'--results={results}', *flags]
    return beside_pfl.main(['beside_pfl.py', *flags])

  return main


SIZES = {'train': 50_000, 'test': 20}


def test_rounds_are_in_turn_and_the_report_has_both(run, tmp_path):
  assert run('--rounds=5', '--rounds_per_evaluation=2') == 0
  both = [('ours_graph', 'round'), ('pfl', 'round')]
  measured = [('ours_graph', 'accuracy'), ('pfl', 'accuracy')]
  ends = [('ours_graph', 'end'), ('pfl', 'end')]
  assert _Child.asked == [*both * 2, *measured, *both * 2, *measured, *both, *measured, *ends]
  rows = list(csv.DictReader((tmp_path / 'results.csv').read_text().splitlines()))
  assert [row['accuracy pfl-research'] for row in rows] == ['', '0.02', '', '0.04', '0.05']
  text = (tmp_path / 'results.md').read_text()
  assert '| seconds a round, median | 0.500 | 1.000 |' in text
  assert '| accuracy after round 4 | 0.0400 | 0.0400 |' in text
  assert '2.00 x as fast as pfl-research 0.6.0' in text
  assert (tmp_path / 'results.png').read_bytes().startswith(b'\x89PNG')


def test_it_ends_when_the_minutes_have_passed(run):
  assert run('--rounds=100', '--minutes=0.05', '--rounds_per_evaluation=50') == 0
  assert _Child.asked.count(('pfl', 'round')) == 2  # Of 1.5 seconds each.
  assert _Child.asked.count(('pfl', 'accuracy')) == 1


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--minutes=0', '--minutes=0: give more than 0'),
    ('--rounds=0', '--rounds=0'),
    ('--data_dir=', '--data_dir is needed'),
    ('--data_dir=nowhere', 'there is no cifar10.npz'),
  ],
)
def test_bad_input_is_one_line(run, capsys, flag, message):
  assert run(flag) == 2
  error = capsys.readouterr().err
  assert message in error
  assert error.count('\n') == 1


def test_what_was_measured_before_a_process_ended_is_written(run, tmp_path, monkeypatch, capsys):
  answer = _Child.ask

  def ask(self, request):
    if self.variant == 'pfl' and request == 'accuracy' and self.rounds == 4:
      assert len((tmp_path / 'results.csv').read_text().splitlines()) == 3
      raise RuntimeError('a child ended')
    return answer(self, request)

  monkeypatch.setattr(_Child, 'ask', ask)
  assert run('--rounds=9', '--rounds_per_evaluation=2') == 1
  assert 'a child ended; ' in capsys.readouterr().err
  rows = list(csv.DictReader((tmp_path / 'results.csv').read_text().splitlines()))
  assert [int(row['round']) for row in rows if row['accuracy tff-adaptive']] == [2]
  assert len(rows) == 4
  text = (tmp_path / 'results.md').read_text()
  assert 'Not complete: a process ended after 4 of 9 rounds.' in text
  assert (tmp_path / 'results.png').exists()
