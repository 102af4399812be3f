"""The rows of the bench: their file, and the stored ones."""

import dataclasses
import math

import pytest

from scripts.comparison import cells, methods, problems, rows
from tests.helpers import bench_rows


def test_rows_come_back_in_the_order_of_their_keys(tmp_path):
  path = str(tmp_path / 'rows.csv')
  assert rows.read(path) == {}
  whole = bench_rows.cell('digits', bench_rows.fed_avg(), 0.9)
  lost = dataclasses.replace(
    next(iter(whole.values())), problem='synthetic', status=rows.DIVERGED, value=math.nan
  )
  rows.write(path, [lost, *reversed(whole.values())])
  again = rows.read(path)
  assert [*again] == sorted([*whole, lost.key])
  for key, row in whole.items():
    assert again[key].value == pytest.approx(row.value, abs=1e-6)
    assert again[key].settings == pytest.approx(row.settings)
    assert again[key].evaluations == pytest.approx(row.evaluations)
  assert math.isnan(again[lost.key].value)


def test_rows_of_another_protocol_are_left_out_and_bad_lines_are_named(tmp_path):
  path = tmp_path / 'rows.csv'
  row = next(iter(bench_rows.cell('digits', bench_rows.fed_avg(), 0.9).values()))
  rows.write(str(path), [dataclasses.replace(row, version=rows.VERSION + 1)])
  assert rows.read(str(path)) == {}
  path.write_text('a,b\n1,2\n')
  with pytest.raises(ValueError, match='has no rows of the bench: it lacks the column problem'):
    rows.read(str(path))
  rows.write(str(path), [row])
  path.write_text(path.read_text().replace(',done,', ',done,much'))
  with pytest.raises(ValueError, match="line 2: value is 'much0"):
    rows.read(str(path))


def test_each_stored_row_is_of_the_protocol_of_today():
  stored = rows.read_all(rows.stored_files())
  compared = {method.key: method for method in methods.built_in()}
  for key, row in stored.items():
    if key.method not in compared:  # It may have been renamed or left out since.
      continue
    cell = cells.Cell(key.problem, compared[key.method], key.budget)
    assert key in (*cell.search_keys(), *cell.final_keys())
    assert row.code == ''
    points = [rows.in_words(point) for point in cell.points()]
    assert row.point in points, key
    if row.status == rows.DONE:
      assert math.isfinite(row.value)
      assert len(row.evaluations) > problems.AVERAGED
    else:
      assert row.reason


def test_two_rows_of_a_run_and_a_value_that_is_not_the_curves_are_refused(tmp_path):
  path = tmp_path / 'rows.csv'
  row = rows.Row('digits', 'fed_avg', 'small', rows.FINAL, 1, '', rows.DONE, 0.75, 0.5, '0 0.5 1')
  rows.write(str(path), [row])
  assert list(rows.read(str(path))) == [row.key]
  rows.write(str(path), [dataclasses.replace(row, value=0.8)])
  with pytest.raises(ValueError, match=r'line 2: value is 0\.8, but the last 2 .* mean 0\.75;'):
    rows.read(str(path))
  rows.write(str(path), [row])
  header, line = path.read_text().splitlines()
  path.write_text('\n'.join([header, line, line]))
  with pytest.raises(ValueError, match='line 3: digits/fed_avg/small/final/1 is there twice'):
    rows.read(str(path))


def test_rounding_to_six_digits_is_no_other_value(tmp_path):
  path = str(tmp_path / 'rows.csv')
  evaluations = [-99999.94, 99999.5]  # Their mean has fewer exact digits than they have.
  key = rows.Key('digits', 'fed_avg', 'small', rows.FINAL, 1)
  curve = ' '.join(f'{value:.6g}' for value in [0.0, *evaluations])
  row = rows.Row(*key, '', rows.DONE, sum(evaluations) / 2, 0.0, curve)
  rows.write(path, [row])
  assert list(rows.read(path)) == [key]
