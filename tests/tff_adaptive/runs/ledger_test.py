"""The ledger: a row for each client that was drawn, the same when resumed."""

import numpy as np
import pytest

from tests.helpers import fakes
from tff_adaptive import costs, population, registry
from tff_adaptive.runs import errors, ledger, run as run_lib
from tff_adaptive.training import replay

COSTS = costs.CostModel(registry.Counts(), num_parameters=250_000, batch_size=2)  # 1 MB.
SLOW = population.Population(
  population.Always(),
  population.Speed(seconds_per_step=1.0, downlink=1.0, uplink=1.0, speed_sigma=0.8),
  over_select=1.6,
  round_deadline=8.0,
  dropout_rate=0.2,
)


def train(folder, rounds, **options):
  return fakes.train(folder, rounds, ledger=True, cost_model=COSTS, **options)


@pytest.mark.parametrize('clients', [None, SLOW], ids=['all_finish', 'population'])
def test_it_adds_up_to_the_rows_of_the_rounds(tmp_path, clients):
  train(tmp_path, 9, population=clients)
  table = ledger.read(str(tmp_path))
  assert run_lib.load_run(str(tmp_path)).ledger.equals(table)
  for row in fakes.rows(tmp_path)[1:]:
    of_round = table[table['round'] == int(row['round'])]
    counted = of_round[of_round['outcome'] == 'counted']
    assert len(counted) == int(row['clients'])
    assert counted['examples'].sum() == int(row['examples'])
    assert counted['steps'].sum() == int(row['local_steps'])
    assert of_round['bytes_down'].sum() / 1e6 == float(row['megabytes_down'])
    assert counted['bytes_up'].sum() / 1e6 == float(row['megabytes_up'])
    if clients is not None:
      assert len(of_round) == int(row['selected'])
      assert len(of_round) - len(counted) == int(row['dropped'])
      assert counted['virtual_seconds'].max() <= 8.0
  if clients is not None:
    assert {'failed', 'late', 'enough'} & set(table['outcome'])
    assert set(table['outcome']) <= {'counted', 'failed', 'late', 'enough'}


def test_a_resumed_run_has_the_same_ledger(tmp_path):
  train(tmp_path / 'whole', 11, population=SLOW)
  for rounds in (3, 6, 11):
    train(tmp_path / 'parts', rounds, population=SLOW)
  whole = ledger.read(str(tmp_path / 'whole'))
  parts = ledger.read(str(tmp_path / 'parts'))
  assert whole.equals(parts)


def test_a_run_that_diverges_keeps_the_rows_of_the_rounds_before(tmp_path):
  process = fakes.StatefulProcess(poison_round=7)
  with pytest.raises(errors.NonFiniteWeightsError):
    fakes.train(tmp_path, 9, process, ledger=True, rounds_per_checkpoint=4)
  assert set(ledger.read(str(tmp_path))['round']) == set(range(1, 7))
  train(tmp_path / 'whole', 9, rounds_per_checkpoint=4)
  fakes.train(tmp_path, 9, ledger=True, rounds_per_checkpoint=4)  # From round 4.
  rounds = ledger.read(str(tmp_path))['round'].tolist()
  assert rounds == ledger.read(str(tmp_path / 'whole'))['round'].tolist()


def test_rounds_that_are_repeated_are_not_in_it_twice(tmp_path):
  train(tmp_path, 8)
  before = ledger.read(str(tmp_path))
  train(tmp_path, 8, resume_from='previous')
  assert ledger.read(str(tmp_path)).equals(before)


def test_it_has_norms_weights_and_attackers_where_they_are_known(tmp_path):
  who = population.Attackers(0.3, 'label_flip', classes=2)
  train(tmp_path, 4, process=fakes.MeasuringProcess(), attackers=who)
  table = ledger.read(str(tmp_path))
  assert (table['update_norm'] > 0).all()
  attackers = {fakes.Clients.client_ids[i] for i in who.positions(20, 3)}
  np.testing.assert_array_equal(table['is_attacker'], table['client'].isin(attackers))
  assert table['loss_before'].isna().all()


@pytest.mark.parametrize('begin_with_server_model', [True, False])
def test_losses_of_a_rule_are_in_it_where_clients_begin_with_the_model_of_the_server(
  tmp_path, monkeypatch, begin_with_server_model
):
  monkeypatch.setattr(replay, 'begin_with_server_model', lambda process: begin_with_server_model)

  class Evaluated(population.Uniform):
    needs = ('train_losses',)

  def losses(weights, clients):
    return np.array([[arrays['x'].mean(), 0.0] for arrays in clients])

  process = fakes.MeasuringProcess()
  train(tmp_path, 3, process=process, cohort=Evaluated(), client_losses=losses)
  table = ledger.read(str(tmp_path))
  if begin_with_server_model:
    expected = [fakes.Clients().load(client)['x'].mean() for client in table['client']]
    np.testing.assert_allclose(table['loss_before'], expected)
  else:
    assert table['loss_before'].isna().all()


def test_types_do_not_depend_on_what_is_known(tmp_path):
  train(tmp_path / 'known', 4)
  fakes.train(tmp_path / 'unknown', 4, ledger=True)  # Without costs.
  known = ledger.read(str(tmp_path / 'known'))
  unknown = ledger.read(str(tmp_path / 'unknown'))
  assert unknown['steps'].isna().all()
  assert known['steps'].notna().all()
  assert known.dtypes.equals(unknown.dtypes)
  assert str(known['steps'].dtype) == 'Int64'
  assert str(known['round'].dtype) == 'int64'


def test_a_run_without_one_says_so(tmp_path):
  fakes.train(tmp_path, 2)
  with pytest.raises(errors.RunFileError, match='has no ledger'):
    ledger.read(str(tmp_path))
