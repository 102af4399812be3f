"""How many workers a node has room for."""

import pytest

from tff_adaptive.engine.cluster import node_room


@pytest.mark.parametrize(
  'resources, cpus, gpus, expected',
  [
    ({'CPU': 4.0}, 1, 0, 4),
    ({'CPU': 5.0}, 2, 0, 2),
    ({'CPU': 8.0, 'GPU': 2.0}, 1, 1, 2),
    ({'CPU': 8.0, 'GPU': 2.0}, 1, 0.25, 8),
    ({'CPU': 6.0, 'GPU': 2.0}, 1, 0.25, 6),
    ({'CPU': 99.0, 'GPU': 1.0}, 1, 0.1, 10),
    ({'CPU': 99.0, 'GPU': 3.0}, 1, 0.05, 60),
    ({'CPU': 99.0, 'GPU': 2.0}, 1, 0.6, 2),
    ({'CPU': 8.0, 'GPU': 3.0}, 1, 2, 1),
    ({'CPU': 8.0}, 1, 0.5, 0),
    ({'GPU': 2.0}, 1, 1, 0),
  ],
)
def test_room_is_what_processors_and_gpus_allow(resources, cpus, gpus, expected):
  assert node_room.room(resources, cpus, gpus) == expected
