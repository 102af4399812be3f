"""Defaults are layers: later ones win, and what is given counts, even if it equals a default."""

import pytest

from scripts.cli import defaults, resolve
from tff_adaptive_tasks import catalog


@pytest.mark.parametrize(
  'layers, expected',
  [
    ([{'a': 1, 'b': 2}, {'b': 3}], {'a': 1, 'b': 3}),
    ([{'a': 1}, {'a': None}], {'a': 1}),
    ([{'a': 1}, {'a': 0}], {'a': 0}),
    # What a layer says of the same thing under another name replaces what was said before.
    ([{'clients_per_round': 10}, {'participation': 0.5}], {'participation': 0.5}),
    ([{'participation': 1.0}, {'buffer_size': 4}], {'buffer_size': 4}),
    (
      [{'client_epochs': 1}, {'local_steps': 9, 'random_local_steps': True}],
      {'local_steps': 9, 'random_local_steps': True},
    ),
    ([{'local_steps': 9, 'random_local_steps': True}, {'client_epochs': 1}], {'client_epochs': 1}),
  ],
)
def test_later_layers_win(layers, expected):
  assert defaults.merged(*layers) == expected


# A flag, its value, the value that the flag has anyway without the rest, and the rest.
SAME_AS_DEFAULT = [
  ('client_weighting', 'examples', {'algorithm': 'scaffold'}),
  ('client_epochs', 1, {'algorithm': 'scaffnew'}),
  ('client_schedule', 'constant', {'task': 'emnist_letters'}),
  ('weight_decay', 0.0, {'task': 'emnist_letters'}),
  ('server_learning_rate', 1.0, {'algorithm': 'scaffold', 'server_optimizer': 'yogi'}),
  ('beta', 0.96, {'algorithm': 'ada_best', 'server_optimizer': 'yogi'}),
]


@pytest.mark.parametrize('name, value, more', SAME_AS_DEFAULT)
def test_a_given_value_that_equals_a_default_counts_as_given(name, value, more):
  assert resolve.resolve(**more).flat()[name] != value
  assert resolve.resolve({name: value}, **more).flat()[name] == value


def test_epochs_that_equal_the_tasks_replace_the_steps_of_an_algorithm():
  assert catalog.sizes('digits')['client_epochs'] == 1
  training = resolve.resolve(task='digits', algorithm='scaffnew', client_epochs=1).training
  assert training.client_epochs == 1
  assert (training.local_steps, training.random_local_steps) == (None, None)


def test_the_layers_of_a_run_go_from_general_to_particular():
  # The algorithm's random steps, the task's number of steps left out, the command line's number.
  defaults = resolve.resolve(task='fed_heart', algorithm='scaffnew', local_steps=3).training
  assert (defaults.local_steps, defaults.random_local_steps, defaults.continue_batches) == (
    3,
    True,
    None,
  )
  rates = resolve.resolve(client_optimizer='lion', server_learning_rate=0.5).rates
  assert (rates.client_learning_rate, rates.server_learning_rate) == (1e-4, 0.5)
  assert resolve.resolve(algorithm='diloco').rates.server_learning_rate == 0.7


def test_a_rate_is_built_once():
  rates = resolve.resolve(client_schedule='inv_sqrt').rates
  assert rates.client is rates.client
  assert rates.server is rates.server
