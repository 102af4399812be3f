"""The bench's page says what the numbers are."""

import json

from scripts.comparison import methods, page, results
from tests.helpers import bench_rows

NAMES = ['digits', 'tumours']


def collected(subjects):
  whole = {}
  for name, height in (('fed_avg', 0.8), ('scaffold', 0.9), ('moon', 0.7)):
    for problem in NAMES:
      whole.update(bench_rows.cell(problem, methods.Method(name), height))
  return results.collect(whole, 'small', NAMES, [methods.Method(s) for s in subjects])


def test_the_page_of_a_method(tmp_path):
  whole = page.build(collected(['scaffold']), 'bench')
  text = whole.markdown()
  assert (
    '| digits, few labels, % | 90.0 ± 2.0 | 80.0 ± 2.0 | 80.0 ± 2.0 (FedAvg) | 1 of 3 |' in text
  )
  # A loss, of which less is better; the differences are the same for each seed.
  assert (
    '| tumours, loss (low is good) | 0.900 ± 0.020 | 0.800 ± 0.020 | 0.700 ± 0.020 (MOON)' in text
  )
  assert '| FedAvg | 3 | +10.0 | +10.0 to +10.0 | better |' in text
  assert '| FedAvg | 3 | +0.100 | +0.100 to +0.100 | worse |' in text
  assert '1 / 1 / 0' in text  # Against FedAvg: better on one, worse on the other.
  assert '| digits, few labels: SCAFFOLD | 2 | 100 | 0.5 |' in text
  assert 'bench --rerun=PROBLEM/METHOD/small/STAGE/NUMBER' in text
  assert 'What cannot be concluded' in text
  paths = page.write(whole, str(tmp_path / 'bench'))
  assert [path.rpartition('.')[2] for path in paths] == ['md', 'html', 'csv', 'png']
  written = (tmp_path / 'bench.md').read_text()
  assert written.startswith('# SCAFFOLD beside the built-in methods\n\n![')
  assert '<svg' in (tmp_path / 'bench.html').read_text()
  assert (tmp_path / 'bench.png').stat().st_size > 5000


def test_the_page_of_all_methods_and_its_json():
  of_all = collected([])
  text = page.build(of_all, 'bench').markdown()
  assert 'In short' not in text
  assert '| FedAvg | 2.0 | 80.0 ± 2.0 | 0.800 ± 0.020 |' in text
  record = json.loads(json.dumps(collected(['moon']).record(), allow_nan=False))
  assert record['methods']['moon']['problems']['digits']['rank'] == 3
  assert record['methods']['moon']['problems']['tumours']['rank'] == 1
  conclusions = {(d['problem'], d['other']): d['conclusion'] for d in record['differences']}
  assert conclusions['digits', 'fed_avg'] == 'worse'
  assert conclusions['tumours', 'fed_avg'] == 'better'
