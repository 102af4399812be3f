"""The catalogue has every task and the papers' values."""

import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive import registry
from tff_adaptive_tasks import catalog


def test_the_catalogue_has_the_papers_rates():
  yogi = catalog.rates('emnist_cr', 'yogi')
  assert yogi['client_learning_rate'] == pytest.approx(10**-1.5)
  assert yogi['server_learning_rate'] == pytest.approx(10**-2.5)
  assert yogi['tau'] == 1e-4
  sizes = catalog.sizes('emnist_cr')
  assert (sizes['clients_per_round'], sizes['batch_size'], sizes['rounds']) == (10, 20, 1500)
  assert catalog.rates('stackoverflow_lr', 'adagrad')['server_learning_rate'] == 10
  assert catalog.rates('cifar100', 'sgd')['server_learning_rate'] == pytest.approx(10**0.5)
  assert catalog.rates('shakespeare', 'sgdm')['server_learning_rate'] == pytest.approx(10**-0.5)
  letters = catalog.sizes('emnist_letters')
  assert (letters['batch_size'], letters['client_epochs']) == (45, 5)
  assert letters['weight_decay'] == 1e-4
  assert catalog.sizes('cifar100_cnn')['weight_decay'] == 1e-3
  assert 'tau' not in catalog.rates('emnist_cr', 'sgd')
  # FLamby, as its published results have them.
  found = [catalog.rates('fed_heart', server) for server in ('sgd', 'adagrad', 'adam', 'yogi')]
  assert [rates['client_learning_rate'] for rates in found] == pytest.approx(
    [0.001, 0.003162, 0.01, 0.003162], rel=1e-3
  )
  assert [rates['server_learning_rate'] for rates in found] == pytest.approx(
    [1, 0.316228, 0.01, 0.01], rel=1e-5
  )
  assert found[2]['tau'] == 1e-8
  brca = catalog.sizes('fed_tcga_brca')
  assert (brca['rounds'], brca['batch_size'], brca['local_steps']) == (5, 8, 100)


def test_every_task_has_values_for_every_server_optimizer():
  assert {*catalog.SERVER_OPTIMIZERS} <= {*registry.SERVER_OPTIMIZERS}  # Not all are tuned.
  for task in (*catalog.names(), ''):
    values = catalog.sizes(task)
    assert values['rounds'] >= 1
    assert values.get('client_schedule', 'constant') in registry.SCHEDULES
    for server in catalog.SERVER_OPTIMIZERS:
      rates = catalog.rates(task, server)
      assert 0 < rates['client_learning_rate'] <= 100
      assert ('tau' in rates) == (server in catalog.ADAPTIVE)
      assert {*rates} <= {*catalog.TUNED}
  assert max(len(entry.description) for entry in catalog.TASKS.values()) < 90


@pytest.mark.parametrize('task', catalog.OFFLINE)
def test_embedded_tasks_have_as_many_clients_as_the_catalogue_says(task):
  assert catalog.num_clients(task, {}) == len(tasks.load(task).train)
  assert catalog.num_clients(task, {'num_clients': 3}) is None
