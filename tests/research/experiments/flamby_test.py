"""FLamby's results re-made: what agrees, and what is refused."""

import numpy as np
import pandas as pd

from research.experiments import flamby


def test_a_cell_agrees_within_the_deviations_of_both():
  rows = [
    ('t', 'A', 'near', 42, 0.5, 0.55),
    ('t', 'A', 'near', 43, 0.7, 0.85),
    ('t', 'A', 'far', 42, 0.5, 0.6),
    ('t', 'A', 'far', 43, 0.52, 0.62),
    ('t', 'A', 'equal', 42, 1.0, 1.0),
    ('t', 'A', 'equal', 43, 1.0, 1.0),
  ]
  table = flamby.compare(
    pd.DataFrame(rows, columns=['task', 'method', 'test', 'seed', 'here', 'published'])
  ).set_index('test')
  assert dict(table['is_within']) == {'near': True, 'far': False, 'equal': True}
  near = table.loc['near']
  np.testing.assert_allclose(near['deviation'], np.sqrt((0.1**2 + 0.15**2) * 2))
  np.testing.assert_allclose(near['difference'], -0.1)


def test_a_folder_without_published_results_is_refused_before_training(tmp_path, capsys):
  code = flamby.main(['flamby', f'--data_dir={tmp_path}', f'--results={tmp_path}/found'])
  assert code == 2
  assert 'heart_seed*.csv is missing: give --data_dir, the folder with' in capsys.readouterr().err
