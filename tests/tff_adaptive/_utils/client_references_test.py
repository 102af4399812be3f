"""References stand for values of one source, which is asked once for all of them."""

from tff_adaptive._utils import client_references


class _Source:
  def __init__(self):
    self.asked = []

  def load(self, keys):
    self.asked.append(list(keys))
    return [10 * key for key in keys]


def test_a_source_is_asked_once_and_in_order():
  source = _Source()
  values = [client_references.ClientReference(source, key) for key in (3, 1, 2)]
  assert client_references.resolve(values) == [30, 10, 20]
  assert client_references.resolve(values[:1]) == [30]
  assert source.asked == [[3, 1, 2], [3]]


def test_values_and_references_to_several_sources_are_no_references():
  one, other = (client_references.ClientReference(_Source(), 1) for _ in range(2))
  for values in ([], [1, 2], [one, 1], [one, other]):
    assert not client_references.is_referenced(values)
    assert client_references.resolve(values) is values
