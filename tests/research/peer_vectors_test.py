"""research/peer_vectors.py: what a cell says of a library's models. The libraries do not run."""

import pathlib
import re

import numpy as np
import pytest

from research import peer_vectors, vectors
from research.peers import cases
from research.peers.forms import form_of

FILES = {name: peer_vectors.content_of(name) for name in peer_vectors.FILES}
CONTENT = FILES['least_squares']
CASES = {case['name']: case for case in CONTENT['cases']}
LOGISTIC = {case['name']: case for case in FILES['logistic']['cases']}


def test_a_cell_has_the_largest_deviation_or_the_round_in_which_a_library_departs():
  models = [np.array(one['server']['x']) for one in CASES['fed_avg']['rounds']]
  models[4] = models[4] + 1e-6 * np.max(np.abs(models[4]))
  assert peer_vectors.cell(CASES['fed_avg'], models) == '1e-06'
  assert peer_vectors.departure('flower', CASES['fed_avg'], CONTENT['problem'], models) is None
  models[2:] = [[np.nan] * 5] * 8
  assert peer_vectors.cell(CASES['fed_avg'], models) == 'round 3 (nan)'
  row = peer_vectors.departure('flower', CASES['fed_avg'], CONTENT['problem'], models)
  assert row == {'library': 'Flower', 'case': 'fed_avg', 'departs in': 'round 3 (nan)'}


def test_a_case_is_run_if_it_has_no_option_that_the_libraries_lack():
  assert cases.algorithm(LOGISTIC['server-sgd']) == 'fed_avg'
  assert cases.algorithm(LOGISTIC['server-adam-corrected']) == 'fed_adam'
  assert cases.algorithm(LOGISTIC['server-adagrad-momentum']) == 'fed_adagrad-momentum'
  assert cases.algorithm(LOGISTIC['fed_nova-momentum']) == 'fed_nova'
  assert cases.algorithm(LOGISTIC['ditto']) == 'ditto'
  for name in ('fed_prox', 'scaffold', 'fed_exp', 'apfl-learnt', 'mime-adam', 'client-adam'):
    assert cases.algorithm(LOGISTIC[name]) is None


@pytest.mark.parametrize('name', peer_vectors.PLAIN)
def test_a_further_case_has_the_rounds_of_its_file_and_the_settings_of_least_squares(name):
  further = LOGISTIC[f'{name}-plain']
  assert cases.algorithm(further) == name
  assert further['hyperparameters'] == CASES[name]['hyperparameters']
  for one, other in zip(further['rounds'], LOGISTIC['server-sgd']['rounds'], strict=True):
    assert one['client_rate'] == other['client_rate']
    members = [[(c['client'], c['steps']) for c in each['clients']] for each in (one, other)]
    assert members[0] == members[1]


FORMS = [
  (file, library, case['name'])
  for file, content in FILES.items()
  for case in content['cases']
  for library in peer_vectors.LIBRARIES
  if form_of(library, case) is not None
]


@pytest.mark.parametrize('file, library, name', FORMS)
def test_a_form_departs_from_the_vectors_and_is_named(file, library, name):
  content = FILES[file]
  (case,) = [case for case in content['cases'] if case['name'] == name]
  text, form = form_of(library, case)
  models = peer_vectors.models_of(form, case, content['problem'])
  row = peer_vectors.departure(library, case, content['problem'], models)
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


@pytest.mark.parametrize('file', FILES)
def test_the_tables_that_are_stored_have_the_form_of_each_departure(file):
  page = (ROOT / 'results' / 'peer_vectors' / 'peer_vectors.md').read_text(encoding='utf-8')
  section = page.partition(f'\n## {peer_vectors.FILES[file]}\n')[2].partition('\n## ')[0]
  agreement, departures = section.split('Where a library departs:')
  assert agreement.count('round ') == departures.count('round ')
  rows = [line.strip('| ').split(' | ') for line in departures.splitlines() if 'round ' in line]
  libraries = {title: library for library, (title, _) in peer_vectors.LIBRARIES.items()}
  by_name = {case['name']: case for case in FILES[file]['cases']}
  for title, name, _, text, deviation in rows:
    assert text == form_of(libraries[title], by_name[name])[0]
    assert float(deviation) < peer_vectors.SAME
