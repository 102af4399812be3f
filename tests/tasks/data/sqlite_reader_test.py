"""Hostile SQLite files are refused before anything of theirs runs; queries are bounded."""

import concurrent.futures
import os
import sqlite3

import pytest

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import sqlite_reader

COLUMNS = {'t': {'a', 'b'}}
TABLE = 'CREATE TABLE t (a TEXT, b INTEGER)'
ENDLESS = 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)'


def write(folder, *statements):
  path = folder / 'd.sqlite'
  with sqlite3.connect(path) as con:
    for statement in statements:
      con.execute(statement)
  con.close()
  return str(path)


def test_rows_are_read_in_any_thread(tmp_path):
  path = write(
    tmp_path, TABLE, "INSERT INTO t VALUES ('x', 1), ('y', NULL)", 'CREATE INDEX i ON t(a)'
  )
  before = set(os.listdir(tmp_path))
  reader = sqlite_reader.Reader(path, COLUMNS)
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    found = list(pool.map(lambda _: reader.query('SELECT * FROM t WHERE a != ?', ('z',)), range(8)))
  assert found == [[(b'x', 1), (b'y', None)]] * 8
  assert reader.file_bytes == os.path.getsize(path)
  assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
  'statements, named',
  [
    ([f'CREATE VIEW t AS {ENDLESS} SELECT x AS a, x AS b FROM c'], "d.sqlite has a view 't'"),
    ([TABLE, 'CREATE VIEW v AS SELECT 1'], "has a view 'v'; data files hold plain tables"),
    ([TABLE, 'CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END'], "has a trigger 'g'"),
    (['CREATE VIRTUAL TABLE t USING fts4(a, b)'], "has a virtual table 't'"),
    (
      ['CREATE TABLE t (a TEXT, b AS (length(zeroblob(900000000))))'],
      'the column b of t is computed; it must hold its values',
    ),
    (['CREATE TABLE t (a TEXT)'], 'its table t lacks b'),
    (['CREATE TABLE u (a TEXT)'], 'its table t is missing'),
  ],
)
def test_what_is_no_plain_table_is_refused(tmp_path, statements, named):
  with pytest.raises(errors.DataError, match=named):
    sqlite_reader.Reader(write(tmp_path, *statements), COLUMNS)


@pytest.mark.parametrize(
  'query, named',
  [
    (f'{ENDLESS} SELECT zeroblob(500) FROM c', 'give more than the file holds'),
    (f'{ENDLESS} SELECT x FROM c', 'give more than the file holds'),
    (f'{ENDLESS} SELECT max(x) FROM c', 'lead back into each other'),
    ('SELECT * FROM gone', 'no such table: gone'),
    ("SELECT load_extension('/x')", 'not authorized|no such function'),
  ],
)
def test_a_query_is_bounded_by_the_file(tmp_path, query, named):
  reader = sqlite_reader.Reader(write(tmp_path, TABLE), COLUMNS)
  for _ in range(2):  # The bound is each query's own.
    with pytest.raises(errors.DataError, match=rf'd.sqlite cannot be read \(.*({named}).*again'):
      reader.query(query)
    assert reader.query('SELECT * FROM t') == []
