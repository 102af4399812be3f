"""research/peer_vectors.py: what a cell says of a library's models. The libraries do not run."""

import json
import pathlib
import re

import numpy as np
import pytest

from research import peer_vectors, vectors

CONTENT = json.loads((vectors.FOLDER / 'least_squares.json').read_text(encoding='utf-8'))
CASES = {case['name']: case for case in CONTENT['cases']}


def test_a_cell_has_the_largest_deviation_or_the_round_in_which_a_library_departs():
  models = [np.array(one['server']['x']) for one in CASES['fed_avg']['rounds']]
  models[4] = models[4] + 1e-6 * np.max(np.abs(models[4]))
  assert peer_vectors.cell(CASES['fed_avg'], models) == '1e-06'
  assert peer_vectors.departure('flower', CASES['fed_avg'], CONTENT['problem'], models) is None
  models[2:] = [[np.nan] * 5] * 8
  assert peer_vectors.cell(CASES['fed_avg'], models) == 'round 3 (nan)'
  row = peer_vectors.departure('flower', CASES['fed_avg'], CONTENT['problem'], models)
  assert row == {'library': 'Flower', 'case': 'fed_avg', 'departs in': 'round 3 (nan)'}


@pytest.mark.parametrize('library, name', peer_vectors.FORMS)
def test_a_form_departs_from_the_vectors_and_is_named(library, name):
  text, form = peer_vectors.FORMS[library, name]
  models = peer_vectors.models_of(form, CASES[name], CONTENT['problem'])
  row = peer_vectors.departure(library, CASES[name], CONTENT['problem'], models)
  assert row['library'] == peer_vectors.LIBRARIES[library][0]
  assert row['departs in'].startswith(('round 1 (', 'round 2 ('))
  assert row['the form that it computes'] == text
  assert row['deviation from that'] == '0e+00'


ROOT = pathlib.Path(vectors.FOLDER).parent
DRAFTS = ROOT / 'research' / 'notes' / 'reports_to_others'


@pytest.mark.parametrize('draft', [path.stem for path in sorted(DRAFTS.glob('*.md'))])
def test_the_program_of_a_report_to_others_prints_what_the_report_says(draft, capsys):
  text = (DRAFTS / f'{draft}.md').read_text(encoding='utf-8')
  (program, printed) = re.search(r'```python\n(.*?)```\n\n```\n(.*?)```', text, re.DOTALL).groups()
  exec(program, {})
  assert capsys.readouterr().out == printed
  names = [name for name in CASES if f'`{name}`' in text]
  assert names
  assert 'vectors/least_squares.json' in text


def test_the_table_that_is_stored_has_a_row_for_each_form():
  page = ROOT / 'results' / 'peer_vectors' / 'peer_vectors.md'
  departures = page.read_text(encoding='utf-8').partition('## Departures')[2]
  for (library, name), (text, _) in peer_vectors.FORMS.items():
    title = peer_vectors.LIBRARIES[library][0]
    (row,) = re.findall(rf'\| {title} \| {name} \|.*', departures)
    assert f'| {text} |' in row
    assert float(row.split('|')[-2]) < peer_vectors.SAME
