"""References stand for values of one source, which is asked once for all of them."""

from unittest import mock

from tff_adaptive._utils import client_references


def test_a_source_is_asked_once_and_in_order():
  source = mock.Mock(load=mock.Mock(side_effect=lambda keys: [10 * key for key in keys]))
  values = [client_references.ClientReference(source, key) for key in (3, 1, 2)]
  assert client_references.resolve(values) == [30, 10, 20]
  assert client_references.resolve(values[:1]) == [30]
  assert source.load.mock_calls == [mock.call([3, 1, 2]), mock.call([3])]


def test_values_and_references_to_several_sources_are_no_references():
  one = client_references.ClientReference(mock.Mock(), 1)
  other = client_references.ClientReference(mock.Mock(), 1)
  for values in ([], [1, 2], [one, 1], [one, other]):
    assert not client_references.is_referenced(values)
    assert client_references.resolve(values) is values
