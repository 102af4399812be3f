"""FedProx's figure re-made: who straggles in a round, and how much each does."""

import collections

import numpy as np
import pytest

from research.experiments import synthetic


@pytest.mark.parametrize('share, count', [(0.0, 10), (0.5, 5), (0.9, 1)])
def test_fed_avg_drops_the_clients_whose_partial_work_fed_prox_keeps(share, count):
  synthetic._FLAGS(['synthetic'])
  sizes = 1 + 7 * np.arange(30)
  data = [collections.OrderedDict(x=np.zeros([n, 60], 'f'), y=np.zeros(n, 'i')) for n in sizes]
  partial = set()
  for number in range(20):
    kept = [element for (element,) in synthetic.cohort(data, number, share, True)]
    dropped = [element for (element,) in synthetic.cohort(data, number, share, False)]
    clients = [int(element['client']) for element in kept]
    assert len(set(clients)) == 10
    steps = {c: int(e['max_steps']) / -(-sizes[c] // 10) for c, e in zip(clients, kept)}
    whole = [c for c in clients if steps[c] == 20]
    assert [int(element['client']) for element in dropped] == whole
    assert len(whole) == count
    partial |= {epochs for epochs in steps.values() if epochs < 20}
  assert partial <= set(range(1, 20))
  assert (len(partial) > 10) == (share > 0)
