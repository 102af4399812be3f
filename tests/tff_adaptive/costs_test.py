"""What rounds cost, against numbers worked out by hand from AdaBest's table 5."""

import pytest

from tff_adaptive import costs, registry

# n = 100 parameters, B = 10, E = 2; three clients of 10, 25 and 1 examples: K = 2, 6, 2.
SIZES = (10, 25, 1)


def counts(algorithm, **values):
  entry = registry.algorithm(algorithm)
  return entry.counts(entry.values(values))


def cost(algorithm, **values):
  return costs.CostModel(counts(algorithm, **values), 100, 10, 2).round(SIZES)


@pytest.mark.parametrize(
  'num_examples, batch_size, epochs, steps',
  [
    (10, 10, 1, 1),
    (11, 10, 1, 2),
    (9, 10, 5, 5),
    (545, 45, 5, 65),
    (600, None, 3, 3),
    (0, 10, 3, 0),
  ],
)
def test_steps_are_epochs_times_batches_rounded_up(num_examples, batch_size, epochs, steps):
  assert costs.local_steps(num_examples, batch_size, epochs) == steps
  assert costs.local_steps(0, None, epochs) == 0


@pytest.mark.parametrize('algorithm', registry.ALGORITHMS)
def test_parameters_are_four_bytes_and_scaffold_alone_sends_more(algorithm):
  down, up = {'scaffold': (2, 2), 'scaffold_m': (2, 1)}.get(algorithm, (1, 1))
  found = cost(algorithm)
  assert (found.bytes_down, found.bytes_up) == (down * 1200, up * 1200)


def test_bytes_are_those_of_a_parameter_times_their_number():
  model = costs.CostModel(counts('ada_best'), 100, 10, 2)
  double = costs.CostModel(counts('ada_best'), 100, 10, 2, bytes_per_parameter=8)
  assert double.round(SIZES).bytes_down == 2 * model.round(SIZES).bytes_down
  assert double.round(SIZES).bytes_up == 2 * model.round(SIZES).bytes_up
  first = model.round([10])
  assert first.columns() == {'megabytes_down': 4e-4, 'megabytes_up': 4e-4, 'local_steps': 2}


def test_clients_that_take_fewer_steps_and_clients_that_only_receive():
  model = costs.CostModel(counts('scaffold'), 100, 10, 2)
  whole = model.round(SIZES)
  assert model.round(SIZES, [2, 6, 2], 3) == whole
  found = model.round(SIZES, [1, 3, 1], downloads=5)
  assert found.local_steps == 5
  assert found.bytes_down == 5 * model.bytes_of_client[0] == 5 * 800
  assert found.bytes_up == whole.bytes_up == 3 * model.bytes_of_client[1]


@pytest.mark.parametrize(
  'arguments, message',
  [
    ((0, 10), 'num_parameters must be at least 1, found 0'),
    ((100, 0), 'batch_size must be at least 1, found 0'),
    ((100, 10, 0), 'epochs must be at least 1, found 0'),
    ((100, 10, 1, 0), 'bytes_per_parameter must be at least 1, found 0'),
  ],
)
def test_bad_values_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    costs.CostModel(registry.Counts(), *arguments)
