"""Options of a task by the annotations of its loader; `loading_test` has those of the catalogue."""

import typing

import pytest

from tff_adaptive_tasks import errors, task_options


def _load(
  data_dir,
  seed,
  size: int = 1,
  rate: float = 0.1,
  kind: typing.Literal['a', 'b'] = 'a',
  limit: int | None = 3,
  mixed: int | str = 1,
  older: typing.Optional[float] = None,  # noqa: UP045
  free='x',
):
  del data_dir, seed, size, rate, kind, limit, mixed, older, free


@pytest.mark.parametrize(
  'option, value, found',
  [
    ('size', 2.0, 2),
    ('rate', 2, 2.0),
    ('kind', 'b', 'b'),
    ('limit', 'none', None),
    ('mixed', 'many', 'many'),
    ('mixed', 2, 2),
    ('older', 'None', None),
    ('free', [1], [1]),
  ],
)
def test_a_value_becomes_what_the_annotation_says(option, value, found):
  checked = task_options.checked('mine', _load, {option: value})
  assert checked == {option: found}
  assert type(checked[option]) is type(found)


@pytest.mark.parametrize(
  'option, value, words',
  [
    ('kind', 'c', "is 'c'; it must be 'a' or 'b'"),
    ('mixed', 1.5, 'is 1.5; it must be a whole number or a word'),
    ('limit', 'x', "is 'x'; it must be a whole number or none"),
    ('size', 2**63, 'it must be a whole number'),
    ('rate', True, 'it must be a number'),
    ('seed', 3, "the task 'mine' has no option seed; it has: free, kind, limit"),
  ],
)
def test_another_value_is_refused_with_what_is_allowed(option, value, words):
  with pytest.raises(errors.DataError) as error:
    task_options.checked('mine', _load, {option: value})
  assert words in str(error.value)


def test_a_loader_of_any_options_takes_them_as_they_are():
  def load(data_dir, seed, size: int = 1, **more):
    del data_dir, seed, size, more

  given = {'size': 2.0, 'anything': 'at all'}
  assert task_options.checked('mine', load, given) == {'size': 2, 'anything': 'at all'}
