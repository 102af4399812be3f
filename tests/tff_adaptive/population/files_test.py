"""The CSV files that describe clients."""

import pytest

from tff_adaptive import population


def written(tmp_path, text):
  path = tmp_path / 'clients.csv'
  path.write_text(text, encoding='utf-8')
  return str(path)


def test_a_trace_is_read_by_client(tmp_path):
  path = written(tmp_path, 'client,from,until\na,0,10\n"b,1",5.5,7\na,20,30\n')
  assert population.read_trace(path) == {'a': [(0, 10), (20, 30)], 'b,1': [(5.5, 7)]}


def test_blanks_around_names_and_cells_do_not_count(tmp_path):
  path = written(tmp_path, 'client, from , until\na , 0, 10\n b, 2,3 \n')
  assert population.read_trace(path) == {'a': [(0, 10)], 'b': [(2, 3)]}
  path = written(tmp_path, 'client, uplink\na , 2\n')
  assert population.read_profiles(path) == {'uplink': {'a': 2.0}}


def test_profiles_are_read_by_column_in_any_order(tmp_path):
  path = written(tmp_path, '\ufeffuplink,client,phase\n1.5,a,0\n2,b,0.25\n')
  assert population.read_profiles(path) == {
    'uplink': {'a': 1.5, 'b': 2.0},
    'phase': {'a': 0.0, 'b': 0.25},
  }


@pytest.mark.parametrize(
  'read, text, message',
  [
    (
      population.read_trace,
      'client,from\na,0\n',
      "columns 'client', 'from'; give client, from, until",
    ),
    (
      population.read_trace,
      'client,from,until,x\na,0,1,2\n',
      "has the columns 'client', 'from', 'unti",
    ),
    (population.read_trace, '', 'of no heading'),
    (population.read_trace, 'client,from,until\n', 'has no clients'),
    (population.read_trace, 'client,from,until\na,0,soon\n', "line 2: until is 'soon'"),
    (population.read_trace, 'client,from,until\na,0,1_0\n', "line 2: until is '1_0'"),
    (population.read_trace, 'client,from,until\na,0\n', 'line 2: give 3 values'),
    (population.read_trace, 'client,from,until\na,0,1,2\n', 'line 2: give 3 values'),
    (population.read_profiles, 'client\na\n', 'and one or more of probability, phase'),
    (population.read_profiles, 'client,speed\na,1\n', 'and one or more of probability, phase'),
    (
      population.read_profiles,
      'client,uplink,uplink\na,1,1\n',
      "has the columns 'client', 'uplink'",
    ),
    (population.read_profiles, 'client,uplink\na,1\na,2\n', "'a' has line 2 already"),
    (population.read_profiles, 'client,uplink\na,inf\n', 'give a finite number'),
  ],
)
def test_a_file_of_another_form_is_refused_by_its_line(tmp_path, read, text, message):
  path = written(tmp_path, text)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(error.value).startswith(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
  with pytest.raises(ValueError, match=r'none\.csv cannot be read'):
    population.read_trace(str(tmp_path / 'none.csv'))
  (tmp_path / 'bytes.csv').write_bytes(b'client,from,until\n\xff,0,1\n')
  with pytest.raises(ValueError, match=r'bytes\.csv cannot be read'):
    population.read_trace(str(tmp_path / 'bytes.csv'))
