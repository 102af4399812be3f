"""The CSV files that describe clients."""

import os
import unicodedata

import pytest

from tff_adaptive import population

TRACE = population.read_trace
PROFILES = population.read_profiles
HEADING = 'client,from,until\n'


def written(tmp_path, text):
  path = tmp_path / 'clients.csv'
  path.write_text(text, encoding='utf-8')
  return str(path)


@pytest.mark.parametrize(
  'read, text, content',
  [
    (TRACE, f'{HEADING}a,0,1\n"b,\r1",5,7\na,2,3\n', {'a': [(0, 1), (2, 3)], 'b,\r1': [(5, 7)]}),
    # Blanks around names and cells do not count.
    (TRACE, 'client, from , until\na , 0, 10\n b, 2.5,3 \n', {'a': [(0, 10)], 'b': [(2.5, 3)]}),
    (PROFILES, 'client, uplink\na , 2\n', {'uplink': {'a': 2.0}}),
    # Columns have any order.
    (
      PROFILES,
      '\ufeffuplink,client,phase\n1.5,a,0\n2,b,0.25\n',
      {'uplink': {'a': 1.5, 'b': 2.0}, 'phase': {'a': 0.0, 'b': 0.25}},
    ),
  ],
)
def test_traces_are_read_by_client_and_profiles_by_column(tmp_path, read, text, content):
  assert read(written(tmp_path, text)) == content


@pytest.mark.parametrize(
  'read, text, message',
  [
    (TRACE, 'client,from\na,0\n', r"columns \['client', 'from'\]; give client, from, until"),
    (TRACE, 'client,from,until,x\na,0,1,2\n', r"has the columns \['client', 'from', 'unti"),
    (TRACE, '', r'has the columns \[\]; give'),
    (TRACE, HEADING, 'has no clients'),
    (TRACE, f'{HEADING}a,0,soon\n', "line 2: until is 'soon'"),
    (TRACE, f'{HEADING}a,0,1_0\n', "line 2: until is '1_0'"),
    (TRACE, f'{HEADING}a,0\n', 'line 2: give 3 values'),
    (TRACE, f'{HEADING}"a"b,0,1\n', 'cannot be read'),
    (TRACE, f'{HEADING}a,0,1,2\n', 'line 2: give 3 values'),
    (PROFILES, 'client\na\n', 'and one or more of probability, phase'),
    (PROFILES, 'client,speed\na,1\n', 'and one or more of probability, phase'),
    (PROFILES, 'client,uplink,uplink\na,1,1\n', r"has the columns \['client', 'uplink'"),
    (PROFILES, 'client,uplink\na,1\na,2\n', "'a' has two lines"),
    (PROFILES, 'client,uplink\na,inf\n', 'give a finite number'),
  ],
)
def test_a_file_of_another_form_is_refused_by_its_line(tmp_path, read, text, message):
  path = written(tmp_path, text)
  with pytest.raises(ValueError, match=message) as error:
    read(path)
  assert str(error.value).startswith(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
  (tmp_path / 'bytes.csv').write_bytes(b'client,from,until\n\xff,0,1\n')
  for name in ('none', 'bytes'):
    with pytest.raises(ValueError, match=rf'{name}\.csv cannot be read'):
      TRACE(str(tmp_path / f'{name}.csv'))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
  path = str(tmp_path / 'trace.csv')
  os.mkfifo(path)
  with pytest.raises(ValueError, match='it is no file'):
    TRACE(path)


@pytest.mark.parametrize('of_run', ['NFC', 'NFD'])
@pytest.mark.parametrize('of_file', ['NFC', 'NFD'])
def test_names_that_look_alike_are_one(tmp_path, of_file, of_run):
  composed = 'Zo\u00eb'
  in_file = unicodedata.normalize(of_file, composed)
  ids = [unicodedata.normalize(of_run, composed)]
  intervals = TRACE(written(tmp_path, f'{HEADING}{in_file},0,1\n'))
  assert intervals == {composed: [(0, 1)]}
  trace = population.Trace(intervals)
  assert trace.unmatched(ids) is None
  assert trace.bind(ids, 0)(1, 0.5).tolist() == [True]
  profiles = PROFILES(written(tmp_path, f'client,probability\n{in_file},1\n'))
  assert profiles == {'probability': {composed: 1}}
  random = population.Independent(profiles['probability'])
  assert random.bind(ids, 0)(1, 0.5).tolist() == [True]


def test_two_forms_of_a_name_have_no_two_lines_of_a_profile(tmp_path):
  lines = 'client,uplink\nZo\u00eb,1\nZoe\u0308,2\n'
  with pytest.raises(ValueError, match='has two lines'):
    PROFILES(written(tmp_path, lines))
