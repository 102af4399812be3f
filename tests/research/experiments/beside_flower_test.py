"""research/experiments/beside_flower.py: both accuracies stand in the row of their round."""

import json

from research.experiments import beside_flower
from tests.helpers import run_folders


def test_rounds_of_both_are_joined_by_the_local_epochs(tmp_path):
  published = {}
  for epochs, name in ((1, 'metrics_centralized/accuracy'), (5, 'accuracy')):
    curve = [[number, 0.1 * epochs + 0.01 * number] for number in range(4)]
    published[f'C=100_B=10_E={epochs}_R=1000_stag=0.0'] = {name: curve}
  path = tmp_path / 'published.json'
  path.write_text(json.dumps({'fedavg_mnist': published}))
  for epochs in (1, 5):
    folder = tmp_path / 'runs' / f'E={epochs}'
    run_folders.make(folder, [0.1, 0.25, 0.5], client_epochs=epochs)
  table = beside_flower.rows(str(tmp_path / 'runs'), str(path))
  assert table['E'].tolist() == [1, 1, 5, 5]
  assert table['round'].tolist() == [1, 2, 1, 2]
  assert table['here'].tolist() == [0.25, 0.5, 0.25, 0.5]
  assert table['flower'].round(6).tolist() == [0.11, 0.12, 0.51, 0.52]
