"""research/experiments/beside_pfllib.py: what PFLlib's program prints becomes rows."""

import types

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from research.experiments import beside_pfllib

_OUTPUT = """
-------------Round number: 0-------------
Evaluate global models
Averaged Test Accuracy: 0.1000
Evaluate personalized models
Averaged Test Accuracy: 0.2000
Std Test Accuracy: 0.9000
-------------Round number: 1-------------
Evaluate personalized model
Average Test Accuracy: 0.5000
"""


def test_the_last_accuracy_of_a_round_counts():
  table = beside_pfllib.rows('Ditto', 1, _OUTPUT)
  assert table.to_numpy().tolist() == [['Ditto', 0, 20.0], ['Ditto', 1, 50.0]]


def test_models_that_are_tuned_after_the_last_round_count_alone():
  output = f'{_OUTPUT}\n{beside_pfllib._TUNED}\nAveraged Test Accuracy: 0.7500\n'
  table = beside_pfllib.rows('FedBABU', 1, output)
  assert table.to_numpy().tolist() == [['FedBABU', 1, 75.0]]


def test_pfllib_gets_the_clients_of_the_task(tmp_path, monkeypatch):
  images = np.zeros((2, 28, 28, 1), np.float32)
  images[1, 1, 0] = 1.0  # The first pixel of the second row.
  clients = types.SimpleNamespace(
    client_ids=['a', 'b', 'c'], load=lambda client: {'x': images, 'y': np.arange(2)}
  )
  task = types.SimpleNamespace(train=clients, test_clients=clients)
  monkeypatch.setattr(tasks, 'load', lambda *_, **__: task)
  beside_pfllib.write_clients(tmp_path, None, 'fashion_mnist')
  files = sorted((tmp_path / 'dataset' / 'FashionMNIST' / 'train').iterdir())
  assert [file.name for file in files] == ['0.npz', '1.npz', '2.npz']
  with np.load(files[0], allow_pickle=True) as content:
    data = content['data'].tolist()
  assert data['x'].shape == (2, 1, 28, 28)
  assert data['x'][1, 0, 1, 0] == 1.0
  assert data['y'].tolist() == [0, 1]


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (['--methods=FedPerr'], 'FedPerr is none of FedAvg'),
    (['--rounds=7', '--rounds_per_evaluation=5'], 'does not divide --rounds=7'),
    ([], 'sh scripts/env/setup_peers.sh pfllib'),
  ],
)
def test_bad_flags_are_refused(flags, words, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(beside_pfllib, '_PFLLIB', tmp_path)
  assert beside_pfllib.main(['beside_pfllib.py', f'--results={tmp_path}/found', *flags]) == 2
  assert words in capsys.readouterr().err
