"""What becomes of clients, summed over a run."""

from tff_adaptive.reports import population_summary


def test_rounds_are_added_up_and_those_of_few_and_of_nobody_counted():
  names = ('round', 'virtual_seconds', 'available', 'selected', 'finished', 'partial', 'dropped')
  table = [(1, 10.0, 9, 4, 2, 1, 1), (2, 15.5, 3, 3, 3, 0, 0), (3, 75.5, 0, 0, 0, 0, 0)]
  rows = [{**dict(zip(names, row)), 'clients': row[4] + row[5]} for row in table]
  rows.insert(0, {'round': 0, 'virtual_seconds': 0.0, 'validation_loss': 1.0})
  rows.append({**dict(zip(names, (4, 80.0, 9, 4, 0, 0, 4))), 'clients': 0})
  assert population_summary.summarize(rows, 4) == {
    'virtual_seconds': 80.0,
    'selected': 11,
    'finished': 5,
    'partial': 1,
    'dropped': 5,
    'rounds_with_few_available': 2,
    'rounds_without_clients': 2,
  }
  assert population_summary.summarize([], 4)['virtual_seconds'] == 0.0
