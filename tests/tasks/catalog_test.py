"""The catalogue has every task and the papers' values."""

import math

import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import catalog

# Reddi et al., 2021: clients, batch, rounds; log10 of the tuned client and server rates and of tau,
# in the order Adagrad, Adam, Yogi, AvgM, Avg. The last two are FLamby's.
_PUBLISHED = """
cifar10          | 10 20 4000  | -1.5 -1.5 -1.5 -1.5 -0.5 | -1 -2 -2 -0.5 0       | -2 -3 -3
cifar100         | 10 20 4000  | -1 -1.5 -1.5 -1.5 -1     | -1 0 0 0 0.5          | -2 -1 -1
emnist_ae        | 10 20 3000  | 1.5 1 1 0.5 1            | -1.5 -1.5 -1.5 0 0    | -3 -3 -3
emnist_cr        | 10 20 1500  | -1.5 -1.5 -1.5 -1.5 -1   | -1 -2.5 -2.5 -0.5 0   | -2 -4 -4
shakespeare      | 10 4 1200   | 0 0 0 0 0                | -0.5 -2 -2 -0.5 0     | -1 -3 -3
stackoverflow_nwp| 50 16 1500  | -0.5 -0.5 -0.5 -0.5 -0.5 | -1.5 -2 -2 0 0        | -4 -5 -5
stackoverflow_lr | 10 100 1500 | 2 2 2 2 2                | 1 -0.5 -0.5 0 0       | -2 -5 -5
fed_heart        | 4 4 15      | -2.5 -2 -2.5 -3 -3       | -0.5 -2 -2 0 0        | -8 -8 -8
fed_tcga_brca    | 6 8 5       | -2 -2 -2 -1 -1           | 0 -1 -1 0 0           | -8 -8 -8
"""


def test_the_catalogue_has_the_papers_rates():
  for row in _PUBLISHED.strip().splitlines():
    (task,), sizes, clients, servers, taus = map(str.split, row.split('|'))
    numbers = catalog.sizes(task)
    names = ('clients_per_round', 'batch_size', 'rounds')
    assert [numbers[name] for name in names] == [int(size) for size in sizes]
    for i, server in enumerate(('adagrad', 'adam', 'yogi', 'sgdm', 'sgd')):
      expected = {'client_learning_rate': clients[i], 'server_learning_rate': servers[i]}
      expected |= {'tau': taus[i]} if i < 3 else {}
      logs = {name: float(value) for name, value in expected.items()}
      rates = catalog.rates(task, server)
      assert {n: math.log10(rates[n]) for n in logs} == pytest.approx(logs), (task, server)


def test_the_catalogue_has_what_else_papers_say():
  letters = catalog.sizes('emnist_letters')
  assert (letters['batch_size'], letters['client_epochs']) == (45, 5)
  assert letters['weight_decay'] == 1e-4
  assert catalog.sizes('cifar100_cnn')['weight_decay'] == 1e-3
  assert 'tau' not in catalog.rates('emnist_cr', 'sgd')
  assert catalog.sizes('fed_tcga_brca')['local_steps'] == 100
  numbers = [catalog.num_clients(name, {}) for name in ('fed_heart', 'fed_tcga_brca', 'mnist_2nn')]
  assert numbers == [4, 6, None]
  assert catalog.metric('emnist_ae') == 'mse'
  assert catalog.metric('mine') is None


@pytest.mark.parametrize('task', catalog.OFFLINE)
def test_embedded_tasks_have_as_many_clients_as_the_catalogue_says(task):
  assert catalog.num_clients(task, {}) == len(tasks.load(task).train)
  assert catalog.num_clients(task, {'num_clients': 3}) is None
