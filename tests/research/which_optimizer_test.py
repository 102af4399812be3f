"""What a cell's search and runs are, and the report."""

import itertools

import numpy as np
import pandas as pd
import pytest

from research import which_optimizer
from research.experiments import frame


@pytest.fixture
def flags():
  which_optimizer._FLAGS(['which_optimizer', '--data_dir=somewhere'])
  return which_optimizer._FLAGS


@pytest.mark.exhaustive
def test_every_cell_can_be_searched_and_trained(flags):
  for problem, method in which_optimizer.cells():
    space = which_optimizer.space(problem, method)
    checked = space.check()
    own_options = {text.partition('=')[0] for text in which_optimizer.METHODS[method]}
    assert {*space.axes} == own_options | {'client_learning_rate'}
    assert checked.what.algorithm == method
    assert checked.what.seed == 100
    held_out = checked.evaluation.heldout_clients or checked.evaluation.heldout_examples
    assert held_out or 'validation=clients' in checked.what.task_option


def test_a_report_has_each_cells_own_numbers(flags):
  columns = ('value', 'area', 'sensitivity', 'megabytes', 'virtual_seconds', 'seconds')
  table = pd.DataFrame({c: [0.1, 0.2, 0.3, np.nan] for c in columns})
  table['problem'] = [*2 * ['mnist'], *2 * ['synthetic']]
  table['server'] = 'synchronous'
  table['method'] = ['scaffold', 'fed_avg', 'fed_avg', 'scaffold']
  parts = which_optimizer.report(table.assign(started='2026', revision='r'))
  assert '| FedAvg | 30 | 20 |' in ''.join(parts)  # synthetic(1, 1), then MNIST.
  assert 'Friedman' not in ''.join(parts[1:])  # Two problems.
  assert '| SCAFFOLD | 2.0 | nan ± nan, 1 diverged | 10.0 ± nan |' in ''.join(parts)
  assert 'a server that does not wait' in ''.join(parts)
  flags.buffered = []
  parts = which_optimizer.report(table.assign(started='2026', revision='r'))
  assert 'a server that does not wait' not in ''.join(parts)


def test_a_cell_with_all_its_rows_is_not_trained_again(flags, tmp_path):
  assert flags.seeds == ['1', '2', '3', '4', '5']
  cells = [*itertools.product(('fed_avg', 'scaffold'), which_optimizer.SERVERS)]
  cells.append(('fed_cm', 'synchronous'))
  rows = []
  for (method, server), seed in itertools.product(cells, range(1, 6)):
    rows.append(
      {'problem': 'mnist', 'method': method, 'server': server, 'seed': seed, 'value': 0.5}
    )
  path = str(tmp_path / 'rows.csv')
  assert which_optimizer.known(path).empty
  frame.write_rows(path, [row for row in rows if row['method'] != 'scaffold' or row['seed'] > 1])
  known = which_optimizer.known(path)
  assert (len(known), {*known.index}) == (15, {('mnist', 'fed_avg'), ('mnist', 'fed_cm')})
  flags.output_dir = str(tmp_path)
  assert which_optimizer.collect(known).equals(known.reset_index())
