"""The experiment on asynchronous training: which share of the server's rate is taken."""

import numpy as np
import pandas as pd

from research.experiments import asynchronous

_PROBLEM = 'MNIST, alpha = 0.03'


def _row(share, seconds, accuracy, stage='tuning', server='B = 1', sigma=1.0, seed=100):
  values = (stage, _PROBLEM, 'FedAvg', server, sigma, share, seed)
  more = {'seconds': seconds, 'updates': seconds, 'accuracy': accuracy, 'staleness': 47.0}
  return dict(zip(asynchronous._KEYS, values)) | more


def test_the_share_that_is_first_at_the_target_is_taken_else_that_which_came_nearest():
  rows = [_row(1, np.inf, 0.9), _row(0.3, 40, 0.88), _row(0.1, 30, 0.88)]
  other = [_row(1, 1, 0.9, stage='final'), _row(1, 1, 0.9, server='B = 10')]
  assert asynchronous.chosen([*other, *rows], _PROBLEM, 'FedAvg', 'B = 1') == 0.1
  nowhere = [_row(1, np.inf, np.nan), _row(0.3, np.inf, 0.5), _row(0.1, np.inf, 0.4)]
  assert asynchronous.chosen(nowhere, _PROBLEM, 'FedAvg', 'B = 1') == 0.3


def test_the_table_has_the_median_of_the_seeds_that_got_there():
  seconds = (10, 30, np.inf)
  rows = [_row(0.3, s, 0.9, stage='final', sigma=2.0, seed=i) for i, s in enumerate(seconds)]
  asynchronous._FLAGS(['asynchronous.py'])
  text = '\n'.join(asynchronous.report(pd.DataFrame(rows)))
  assert '| FedAvg | 2.0 | 20 (2/3) |' in text
  assert '| mean staleness | 47 |' in text


def test_a_run_whose_row_is_written_is_not_made_again(tmp_path, monkeypatch):
  ran = []

  class Bench:
    def __init__(self, *_):
      pass

    def run(self, *asked):
      ran.append(asked)
      return {'seconds': 1.0, 'updates': 50.0, 'accuracy': 0.9, 'staleness': 0.0}

  monkeypatch.setattr(asynchronous, 'Bench', Bench)
  # Whole numbers alone in a column of the file come back as such.
  asynchronous._FLAGS(
    ['asynchronous.py', '--seeds=', '--shares=1', '--problems="MNIST, alpha = 0.03"']
  )
  for _ in range(2):
    asynchronous.train(str(tmp_path / 'rows.csv'))
  assert len(ran) == len(set(ran)) == 25
