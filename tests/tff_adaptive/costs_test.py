"""What rounds cost, against numbers worked out by hand."""

import typing

import pytest

from tff_adaptive import costs, registry

# n = 100 parameters, B = 10, E = 2; three clients of 10, 25 and 1 examples: K = 2, 6, 2.
SIZES = (10, 25, 1)


def model(counts=None, **options):
  return costs.CostModel(counts or registry.Counts(), 100, 10, 2, **options)


class Local(typing.NamedTuple):
  """A client's training."""

  num_examples: int
  batch_size: int | None
  epochs: int
  steps: int


@pytest.mark.parametrize(
  'local',
  [
    Local(num_examples=10, batch_size=10, epochs=1, steps=1),
    Local(num_examples=11, batch_size=10, epochs=1, steps=2),
    Local(num_examples=9, batch_size=10, epochs=5, steps=5),
    Local(num_examples=545, batch_size=45, epochs=5, steps=65),
    Local(num_examples=600, batch_size=None, epochs=3, steps=3),
    Local(num_examples=0, batch_size=10, epochs=3, steps=0),
    Local(num_examples=0, batch_size=None, epochs=1, steps=0),
  ],
)
def test_steps_are_epochs_times_batches_rounded_up(local):
  model_of_costs = costs.CostModel(registry.Counts(), 1, local.batch_size, local.epochs)
  assert model_of_costs.local_steps(local.num_examples) == local.steps


def test_parameters_are_four_bytes_and_some_algorithms_send_or_compute_more():
  plain = {'megabytes_down': 1.2e-3, 'megabytes_up': 1.2e-3, 'local_steps': 10, 'gradients': 10}
  assert model().round(SIZES) == plain
  wide = model(bytes_per_parameter=8).round(SIZES)
  assert wide == {**plain, 'megabytes_down': 2.4e-3, 'megabytes_up': 2.4e-3}
  # A number besides the model; a gradient over all examples is one of 1, 3 or 1 batches.
  more = model(registry.Counts(2, 1 + 1 / 100, gradients=2, full_gradients=1)).round(SIZES)
  assert more == {**plain, 'megabytes_down': 2.4e-3, 'megabytes_up': 1.212e-3, 'gradients': 25}


def test_steps_may_be_the_same_or_fewer_and_clients_may_only_receive():
  costs_of_round = model(fixed_steps=7).round((10, 0, 1))
  assert (costs_of_round['local_steps'], costs_of_round['gradients']) == (14, 14)
  twice = model(registry.Counts(2, 2))
  whole = twice.round(SIZES)
  assert twice.round(SIZES, [2, 6, 2], 3) == whole
  costs_of_round = twice.round(SIZES, [1, 3, 1], downloads=5)
  assert costs_of_round == {
    **whole,
    'local_steps': 5,
    'gradients': 5,
    'megabytes_down': 5 * 800 / 1e6,
  }


def test_bad_values_are_refused():
  good = {'num_parameters': 100, 'batch_size': 10}
  for name in (*good, 'epochs', 'bytes_per_parameter', 'fixed_steps'):
    with pytest.raises(ValueError, match=f'{name} must be at least 1, found 0'):
      costs.CostModel(registry.Counts(), **{**good, name: 0})
  with pytest.raises(TypeError, match='counts must be of the class Counts'):
    costs.CostModel((0, 10), 1, 1)
