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
  assert peer_vectors.cell('flower', CASES['fed_avg'], CONTENT['problem'], models) == '1e-06'
  models[2:] = [[np.nan] * 5] * 8
  cell = peer_vectors.cell('flower', CASES['fed_avg'], CONTENT['problem'], models)
  assert cell == 'round 3 (nan)'


@pytest.mark.parametrize('library, name', peer_vectors.FORMS)
def test_a_form_departs_from_the_vectors_and_is_named(library, name):
  text, form = peer_vectors.FORMS[library, name]
  models = peer_vectors.models_of(form, CASES[name], CONTENT['problem'])
  cell = peer_vectors.cell(library, CASES[name], CONTENT['problem'], models)
  assert cell.startswith(('round 1 (', 'round 2 ('))
  assert cell.endswith(f'{text} (0e+00)')


DRAFTS = pathlib.Path(vectors.FOLDER).parent / 'research' / 'notes' / 'reports_to_others'


@pytest.mark.parametrize('draft', ['tff_fed_prox', 'pfl_scaffold', 'flower_fed_adam'])
def test_the_program_of_a_report_to_others_prints_what_the_report_says(draft, capsys):
  text = (DRAFTS / f'{draft}.md').read_text(encoding='utf-8')
  (program, printed) = re.search(r'```python\n(.*?)```\n\n```\n(.*?)```', text, re.DOTALL).groups()
  exec(program, {})
  assert capsys.readouterr().out == printed
