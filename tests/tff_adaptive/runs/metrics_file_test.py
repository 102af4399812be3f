"""Reading metrics.csv: a table of numbers, or an error that names the line."""

import pytest

from tff_adaptive.runs import metrics_file


def _read(tmp_path, text):
  path = tmp_path / 'metrics.csv'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return metrics_file.read(str(path))


def test_cells_are_numbers_or_empty_and_a_torn_line_is_left_out(tmp_path):
  table = _read(tmp_path, 'round,a,b\n0,,1.5\n3,nan,\n4,1,2')
  assert table.columns == ['round', 'a', 'b']
  assert table.rounds == [0, 3]
  first, second = table.rows()
  assert first == {'round': 0.0, 'b': 1.5}
  assert set(second) == {'round', 'a'}
  assert second['a'] != second['a']


@pytest.mark.parametrize('text', ['', 'round', 'round,a\n'])
def test_a_file_that_has_just_begun_has_no_rows(tmp_path, text):
  assert _read(tmp_path, text).rows() == []


@pytest.mark.parametrize(
  'text, message',
  [
    ('\ufeffround,a\n0,1\n', 'line 1 is not a header'),
    ('0,1\n1,1\n', 'line 1 is not a header'),
    ('round,a,a\n0,1,1\n', 'line 1 is not a header'),
    ('round,\n0,1\n', 'line 1 is not a header'),
    ('round,a\r\n0,1\r\n', 'line 1 is not a header'),
    ('round,a\n0,1\n\n2,1\n', 'line 3 has 1 cells, the header 2'),
    ('round,a\n0,1\n1\n', 'line 3 has 1 cells'),
    ('round,a\n0,1,1\n', 'line 2 has 3 cells'),
    ('round,a\n0,abc\n', "line 2, a: 'abc' is not a number"),
    ('round,a\n,1\n', 'line 2 has no round number'),
    ('round,a\n-1,1\n', 'line 2 has no round number'),
    ('round,a\n1.5,1\n', 'line 2 has no round number'),
    ('round,a\n\u0661,1\n', 'line 2 has no round number'),
    ('round,a\n0,1\n0,1\n', 'line 3 is of round 0, after round 0'),
    ('round,a\n1,1\n0,1\n', 'line 3 is of round 0, after round 1'),
    (b'round,\xff\n', 'cannot be read'),
    ('round,a\n0,1\r\n\0\n', 'line 3 has'),
  ],
)
def test_damage_is_named_by_its_line(tmp_path, text, message):
  with pytest.raises(metrics_file.MetricsFileError, match=message) as caught:
    _read(tmp_path, text)
  assert str(tmp_path) in str(caught.value)


def test_a_folder_is_no_file_and_a_missing_file_is_missing(tmp_path):
  with pytest.raises(metrics_file.MetricsFileError, match='cannot be read'):
    metrics_file.read(str(tmp_path))
  with pytest.raises(FileNotFoundError):
    metrics_file.read(str(tmp_path / 'none'))
