"""Options of tasks are converted by annotations, or refused with what is allowed."""

import typing

import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import options


def _load(
  data_dir,
  seed,
  size: int = 1,
  rate: float = 0.1,
  kind: typing.Literal['a', 'b'] = 'a',
  limit: int | None = 3,
  mixed: int | str = 1,
  either: typing.Literal['a', 'b'] | None = None,
  older: typing.Optional[float] = None,  # noqa: UP045
  free='x',
):
  del data_dir, seed, size, rate, kind, limit, mixed, either, older, free


@pytest.mark.parametrize(
  'option, value, expected',
  [
    ('size', 2.0, 2),
    ('rate', 2, 2.0),
    ('kind', 'b', 'b'),
    ('limit', 'none', None),
    ('mixed', 'many', 'many'),
    ('mixed', 2, 2),
    ('either', 'b', 'b'),
    ('older', 'None', None),
    ('free', [1], [1]),
  ],
)
def test_a_value_becomes_what_the_annotation_says(option, value, expected):
  checked = options.checked("task 'mine'", _load, {option: value})
  assert checked == {option: expected}
  assert type(checked[option]) is type(expected)


@pytest.mark.parametrize(
  'option, value, words',
  [
    ('kind', 'c', "is 'c'; it must be 'a' or 'b'"),
    ('mixed', 1.5, 'is 1.5; it must be a whole number or a string'),
    ('either', 'c', "is 'c'; it must be 'a' or 'b' or none"),
    ('limit', 'x', "is 'x'; it must be a whole number or none"),
    ('size', 2**63, 'it must be a whole number'),
    ('rate', True, 'it must be a number'),
    ('seed', 3, "the task 'mine' has no option seed; it has: either, free, kind"),
  ],
)
def test_another_value_is_refused_with_what_is_allowed(option, value, words):
  with pytest.raises(tasks.DataError) as error:
    options.checked("task 'mine'", _load, {option: value})
  assert words in str(error.value)
