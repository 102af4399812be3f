"""metrics.csv: rows as they come, new columns; damage is named by line."""

import collections

import numpy as np
import pytest

from tff_adaptive.runs import errors, metrics


def test_the_file_is_whole_after_each_row_and_floats_keep_their_bits(tmp_path):
  path = tmp_path / 'm.csv'
  log = metrics.MetricsLog(str(path))
  log.append({'round': 0, 'a': 1 / 3})
  assert path.read_text() == 'round,a\n0,0.3333333333333333\n'
  log.append({'round': 1, 'a': 2})
  assert path.read_text() == 'round,a\n0,0.3333333333333333\n1,2\n'
  for name in ('', 'top-1, top-5', 'a\n'):
    with pytest.raises(ValueError, match='must have a name without commas and line breaks'):
      log.append({'round': 2, name: 0.5})
  before = log._file
  log.append({'round': 2, 'b': True})
  assert before.closed
  assert path.read_text() == 'round,a,b\n0,0.3333333333333333,\n1,2,\n2,,1\n'
  log.close()
  in_memory = metrics.MetricsLog(None)
  for row in metrics.read(str(path)):
    in_memory.append(row)
  for each in (log, in_memory):
    assert (each.columns, each.rows()) == (['round', 'a', 'b'], metrics.read(str(path)))
  again = metrics.MetricsLog(str(path), kept=metrics.read(str(path)))
  again.append({'round': 3, 'b': 0.0})
  assert path.read_text().endswith('2,,1\n3,,0.0\n')
  again.close()


@pytest.mark.parametrize('call', [lambda log: log.sync(), lambda log: log.append({'round': 1})])
def test_a_file_that_was_replaced_is_an_error(tmp_path, call):
  path = tmp_path / 'm.csv'
  log = metrics.MetricsLog(str(path))
  log.append({'round': 0})
  path.unlink()
  path.write_text('round\n')
  with pytest.raises(errors.SaveError, match='was removed'):
    call(log)
  log.close()


def test_columns_are_paths_without_the_parts_that_say_where():
  Pair = collections.namedtuple('Pair', 'loss count')
  nested = {
    'client_work': {'train': Pair(np.float32(0.5), 3), 'nothing': None},
    'aggregator': [np.array(True), np.ones(2), 'text', (4,)],
    'finalizer': (),
    'updates': np.int64(7),
  }
  flat = metrics.flatten(nested)
  # What has no other name keeps the whole of its own.
  expected = {'train_loss': 0.5, 'train_count': 3, '0': True, '3_0': 4, 'updates': 7}
  assert flat == expected
  assert list(flat) == list(expected)
  assert [type(value) for value in flat.values()] == [float, int, bool, int, int]
  # Where short columns would be the same, later ones are whole.
  nested = {'client_work': {'loss': 1}, 'finalizer': {'loss': 2}, 'updates': {'norm': 3}}
  assert metrics.flatten(nested) == {'loss': 1, 'finalizer_loss': 2, 'norm': 3}


def _read(tmp_path, text):
  path = tmp_path / 'metrics.csv'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return metrics.read(str(path))


def test_cells_are_numbers_or_empty_and_a_torn_line_is_left_out(tmp_path):
  first, second = _read(tmp_path, 'round,a,b\n0,,1.5\n3,nan,\n4,1,2')
  assert first == {'round': 0, 'b': 1.5}
  assert list(second) == ['round', 'a']
  assert second['a'] != second['a']
  for text in ('', 'round', 'round,a\n'):  # It has just begun.
    assert _read(tmp_path, text) == []


@pytest.mark.parametrize(
  'text, message',
  [
    ('\ufeffround,a\n0,1\n', 'line 1 is not a header'),
    ('round,a,a\n0,1,1\n', 'line 1 is not a header of different names'),
    ('round,\n0,1\n', 'line 1 is not a header'),
    ('round,a\n0,1\n1\n', 'line 3 has 1 cells'),
    ('round,a\n0,abc\n', 'line 2: .*abc'),
    ('round,a\n,1\n', "line 2: 'round'"),
    ('round,a\n0.5,1\n', 'line 2: round 0.5 is not'),
    ('round,a\n-1,1\n', 'line 2: round -1 is not'),
    ('round,a\n0,1\n0,1\n', 'line 3: round 0 is not after'),
    (b'round,\xff\n', "can't decode byte 0xff"),
  ],
)
def test_damage_is_named_by_its_line(tmp_path, text, message):
  with pytest.raises(errors.RunFileError, match=message) as caught:
    _read(tmp_path, text)
  assert str(caught.value).startswith(f'{tmp_path}/metrics.csv cannot be read (')
  assert '\n' not in str(caught.value)
