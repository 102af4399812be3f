"""A run's summary, from rows written by hand."""

import math

import pytest

from tff_adaptive.runs import summary as summary_lib
from tff_adaptive.runs.errors import RunFileError


@pytest.mark.parametrize(
  'values, expected',
  [([1.0, 2.0, 6.0], 3.0), ([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_the_mean_is_over_the_last_100_rounds_evaluations_finite_or_not(values, expected):
  rows = [{'round': 50, 'validation_loss': 1e6}]
  rows += [{'round': 150 + i, 'validation_loss': v} for i, v in enumerate(values, 1)]
  summary = summary_lib.summarize(rows, True)
  assert summary['mean_last_100_rounds'] == pytest.approx(
    {'validation_loss': expected}, nan_ok=True
  )
  assert summary['evaluations_averaged'] == len(values)


@pytest.mark.parametrize(
  'text, words',
  [
    ('7', 'not subscriptable'),
    ('{}', "it has no 'is_complete'"),
    ('{"is_complete": true, "rounds": "many"}', 'does not say'),
  ],
)
def test_what_cannot_be_read_is_one_line_and_no_complete_run(tmp_path, text, words):
  assert not summary_lib.is_complete(str(tmp_path), 1)
  (tmp_path / 'summary.json').write_text(text)
  with pytest.raises(RunFileError, match=rf'summary\.json cannot be read \(.*{words}'):
    summary_lib.read(str(tmp_path))
  assert not summary_lib.is_complete(str(tmp_path), 1)


@pytest.mark.parametrize('lost, clients, without', [(0, 0, 0), (1, 2, 0), (2, 2, 1)])
def test_a_round_is_without_update_if_no_client_of_some_has_a_finite_one(lost, clients, without):
  row = {'round': 1, 'clients': clients, 'non_finite_clients': lost}
  summary = summary_lib.summarize([row], True)
  assert (summary['rounds_without_update'], summary['ends_without_update']) == (without, without)
  assert summary['non_finite_clients'] == lost


def test_a_complete_run_has_so_many_rounds(tmp_path):
  summary_lib.write(str(tmp_path), summary_lib.summarize([{'round': 3}], True))
  assert summary_lib.is_complete(str(tmp_path), 3)
  assert not summary_lib.is_complete(str(tmp_path), 4)
  summary_lib.write(str(tmp_path), summary_lib.summarize([{'round': 3}], False))
  assert not summary_lib.is_complete(str(tmp_path), 3)
