"""Stray quotation marks in a CSV file, which join rows of it to one cell."""

import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks.data import tables

QUOTED = pd.DataFrame(
  {'who': [f'c{i % 4}' for i in range(40)], 'note': [f'n{i}' for i in range(40)], 'x': range(40)}
).assign(y=['a', 'b'] * 20)


def write_quoted(path, places, ends=False):
  """Writes QUOTED with a quotation mark before (or after) the cells (row, column) of `places`."""
  lines = [['who', 'note', 'x', 'y'], *QUOTED.astype(str).values.tolist()]
  for i, (row, column) in enumerate(places):
    cell = lines[row + 1][column]
    if ends and i:
      lines[row + 1][column] = cell + '"'
    else:
      lines[row + 1][column] = '"' + cell
  path.write_text('\n'.join(map(','.join, lines)) + '\n')
  return str(path)


@pytest.mark.parametrize('ends', [False, True])
@pytest.mark.parametrize(
  'places',
  [[(5, 1), (19, 1)], [(5, 1), (6, 1)], [(5, 0), (9, 0)], [(5, 1), (9, 3)], [(5, 3), (8, 3)]],
)
def test_two_stray_quotes_do_not_swallow_the_rows_between_them(tmp_path, places, ends):
  path = write_quoted(tmp_path / 'a.csv', places, ends)
  name = QUOTED.columns[places[0][1]]
  with pytest.raises(tasks.DataError, match=f'column {name!r} has in row 5 .*a quotation mark'):
    tasks.from_csv(path, 'who', 'y', features=['x'])  # Even where the column is left out.


@pytest.mark.parametrize('rows_of_a_client', [1, 2])
@pytest.mark.parametrize('order', ['who,note,x,y', 'note,x,y,who', 'who,note,y'])
def test_stray_quotes_are_seen_if_no_row_of_their_clients_is_left(
  tmp_path, order, rows_of_a_client
):
  table = QUOTED.assign(who=[f'c{i // rows_of_a_client}' for i in range(40)])[order.split(',')]
  lines = table.to_csv(index=False).splitlines()
  lines[6] = lines[6].replace('n5', '"n5')
  lines[12] = lines[12].replace('n11', 'n11"')
  path = tmp_path / 'a.csv'
  path.write_text('\n'.join(lines))
  with pytest.raises(tasks.DataError, match=r"'note' has in row 5 .*a quotation mark"):
    tasks.from_csv(str(path), 'who', 'y', features=[name for name in ('x',) if name in order])


def test_texts_of_several_lines_and_quotes_within_texts_are_read_as_they_are(tmp_path):
  path = tmp_path / 'a.csv'
  notes = [f'line 1, of {i}\nline 2\n\nline 3' for i in range(40)]
  notes[3] = 'a pipe of 5", or 6"'
  QUOTED.assign(note=notes).to_csv(path, index=False)
  task = tasks.from_csv(str(path), 'who', 'y', features=['x'], validation_by='examples')
  assert len(task.train.load_all()['y']) + len(task.validation['y']) == 40
  path.write_text(path.read_text().replace('"a pipe of 5"", or 6"""', 'a pipe of 5"'))
  assert tables.read_csv(str(path), 'who', ',')['note'][3] == 'a pipe of 5"'


@pytest.mark.parametrize(
  ('order', 'note'),
  [
    ('age,x,who,y,note', 'felt well\n'),
    ('age,x,who,y,note', 'dose now\n5'),
    ('age,x,who,y,note', '\n12'),
    ('age,x,who,note,y', 'well, 1\n'),
    ('who,sex,y,note', 'Symptoms:\ncough, fever, chills, pain\nrest'),
    ('note,who,age,y', 'a, b, c, d\nand so on'),
  ],
)
def test_notes_of_several_lines_with_commas_are_no_rows(tmp_path, order, note):
  table = QUOTED.assign(age=range(20, 60), sex=['f', 'm'] * 20)
  table.loc[5, 'note'] = note
  path = tmp_path / 'a.csv'
  table[order.split(',')].to_csv(path, index=False)
  read = tables.read_csv(str(path), 'who', ',')
  assert read['note'][5] == note.strip()


@pytest.mark.parametrize(
  'rows',
  [
    ['c6,n6,True,a', 'c7,n7,False,b'],  # A column of True and False.
    ['c6,n6,>5,a', 'c7,n7,3,b', 'c8,n8,4,a'],  # A mistake in a number.
    ['c6,n6,5', 'c7,n7,3,b', 'c8,n8,4,a'],  # A row that is too short.
    ['c6,n6,5,a'],
  ],
)
def test_rows_between_quotes_are_seen_in_spite_of_mistakes(tmp_path, rows):
  x = 5
  if 'True' in rows[0]:
    x = True
  begin = [f'a{i},m{i},{x},{"ab"[i % 2]}' for i in range(9)]
  end = f'c9,n9",{x},b'
  lines = ['who,note,x,y', *begin, f'c5,"n5,{x},a', *rows, end]
  path = tmp_path / 'a.csv'
  path.write_text('\n'.join(lines))
  with pytest.raises(ValueError, match=r"'note' has in row 9 .*a quotation mark"):
    tables.read_csv(str(path), 'who', ',')
