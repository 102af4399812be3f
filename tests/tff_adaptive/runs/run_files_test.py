"""A run's folder: what is lost, damaged or full is reported in one line; nothing else is lost."""

import errno
import itertools
import os
import shutil

import numpy as np
import psutil
import pytest

from scripts.cli import records
from tests.faults import small_run
from tests.helpers import failing_files, fakes
from tff_adaptive import runs, training
from tff_adaptive.runs import config, run_files, state_file, state_store, summary as summary_lib

STATE = os.path.join('checkpoints', 'state.sqlite')


@pytest.fixture(scope='module')
def done(tmp_path_factory):
  """A run of six rounds, and the outcome of one of ten."""
  folder = tmp_path_factory.mktemp('done')
  small_run.train(str(folder / 'run'), 6)
  small_run.train(str(folder / 'whole'), 10)
  # Evaluated at each round, so that where it was stopped makes no difference.
  return str(folder / 'run'), small_run.outcome(str(folder / 'whole'))


@pytest.fixture
def run(done, tmp_path):
  shutil.copytree(done[0], tmp_path / 'run')
  return tmp_path / 'run'


def _refused(run, match, error=runs.ResumeError):
  before = small_run.contents(str(run))
  with pytest.raises(error, match=match) as caught:
    small_run.train(str(run), 10)
  assert str(run) in str(caught.value)
  assert '\n' not in str(caught.value)
  assert small_run.contents(str(run)) == before


def test_rows_whose_checkpoint_is_gone_empty_or_new_are_not_written_over(run):
  content = (run / STATE).read_bytes()
  (run / STATE).write_bytes(b'')
  gone = r'metrics.csv has the results of a run, but its checkpoint, .*sqlite, is gone'
  _refused(run, gone)
  (run / STATE).unlink()
  _refused(run, gone)
  (run / STATE).write_bytes(content[: len(content) // 2])
  _refused(run, 'damaged', state_store.StateError)
  (run / STATE).unlink()
  state_store.ClientStateStore(  # A new one in its place.
    str(run / STATE), fakes.StatefulProcess().initial_client_state
  ).close()
  _refused(run, gone)
  (run / 'summary.json').unlink()  # It was killed before its first one.
  _refused(run, gone)
  (run / 'summary.json').write_text('{')  # It still says that there were results.
  (run / 'metrics.csv').unlink()
  _refused(run, 'summary.json has the results')


def test_a_damaged_summary_is_written_anew_where_the_checkpoint_is(run, done):
  (run / 'summary.json').write_text('{')
  small_run.train(str(run), 10)
  assert small_run.outcome(str(run)) == done[1]


def test_a_run_that_was_killed_before_its_second_checkpoint_starts_again(tmp_path, done):
  def evaluate(weights):
    if next(calls) == 2 * num_rows:  # Two models for each row.
      raise SystemExit  # As a kill does, it lets nobody save.
    return fakes.evaluate(weights)

  for num_rows in (0, 1, 3):  # At 0 between the first checkpoint and the first row.
    calls = itertools.count()
    folder = str(tmp_path / str(num_rows))
    with pytest.raises(SystemExit):
      _train(folder, evaluate=evaluate)
    assert not os.path.exists(os.path.join(folder, 'summary.json'))
    small_run.train(folder, 10)
    assert small_run.outcome(folder) == done[1]


@pytest.mark.parametrize(
  'edit, message',
  [
    (lambda lines: lines[1:], r'metrics.csv cannot be read \(line 1 is not a header'),
    (lambda lines: [*lines[:3], *lines[4:]], 'lacks round 2'),
    (lambda lines: lines[:5], 'lacks round 4'),
  ],
)
def test_a_damaged_metrics_file_is_refused_and_stays_as_it_is(run, edit, message):
  lines = (run / 'metrics.csv').read_text().splitlines(keepends=True)
  (run / 'metrics.csv').write_text(''.join(edit(lines)))
  _refused(run, message)


def test_a_torn_last_line_is_left_out_even_where_it_looks_whole(run, done):
  # The row of a round was being written when the process was killed: here, of the last one saved.
  text = (run / 'metrics.csv').read_text()
  (run / 'metrics.csv').write_text(text[:-1])
  _refused(run, 'lacks round 6')
  (run / 'metrics.csv').write_text(text + text.splitlines()[-1].replace('6,', '7,', 1)[:-1])
  small_run.train(str(run), 10)
  assert small_run.outcome(str(run)) == done[1]


def test_a_run_that_has_lost_its_rows_goes_on_if_that_is_accepted(run, done):
  (run / 'metrics.csv').unlink()
  _refused(run, 'lacks round 0, .*accept_lost_rows resumes the run without them')
  resumed = _train(run, accept_lost_rows=True)
  rows = fakes.rows(run)
  assert [int(row['round']) for row in rows] == [6, 7, 8, 9, 10]
  assert rows[0]['validation_loss']
  summary = summary_lib.read(str(run))
  assert (summary['is_complete'], summary['first_recorded_round']) == (True, 6)
  whole = os.path.join(os.path.dirname(done[0]), 'whole')
  loaded = [runs.load_run(folder) for folder in (str(run), whole)]
  np.testing.assert_array_equal(*[each.weights[0] for each in loaded])
  assert resumed.round_number == 10
  for row, expected in zip(rows[1:], fakes.rows(whole)[7:]):
    assert row == expected
  with pytest.raises(ValueError, match='has lost the rows before round 6'):
    loaded[0].progress('seconds')


@pytest.mark.parametrize('is_lost_row', [slice(3, 4), slice(5, None)])
def test_rows_that_are_there_are_kept(run, is_lost_row):
  lines = (run / 'metrics.csv').read_text().splitlines(keepends=True)
  del lines[is_lost_row]
  (run / 'metrics.csv').write_text(''.join(lines))
  fakes.train(run, 8, rounds_per_evaluation=1, accept_lost_rows=True)
  before = [int(line.partition(',')[0]) for line in lines[1:]]
  assert [int(row['round']) for row in fakes.rows(run)] == [*before, 7, 8]


def _train(run, **options):
  return fakes.train(run, 10, rounds_per_evaluation=1, **options)


@pytest.mark.parametrize(
  'name, is_renamed',
  [
    ('.', True),
    ('checkpoints', False),
    (STATE, True),
    ('metrics.csv', False),
    ('metrics.csv', True),
    ('tensorboard', False),
    ('.', False),
    ('config.json', False),
    ('config.json', True),
  ],
)
def test_what_is_removed_or_renamed_during_a_run_is_noticed(run, name, is_renamed):
  class Meddler(training.Callback):
    def round_begin(self, number):
      if number != 8:
        return
      if is_renamed:
        os.rename(run / name, str(run / name).rstrip('.') + 'away')
      elif (run / name).is_dir():
        shutil.rmtree(run / name)
      else:
        os.unlink(run / name)

  with pytest.raises(runs.SaveError, match='was removed') as caught:
    _train(run, callbacks=[Meddler()])
  assert str(run) in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'kind, number, words',
  [
    ('metrics', errno.ENOSPC, 'disk is full'),
    ('events', errno.ENOSPC, 'disk is full'),
    ('events', errno.EROFS, 'written: Read-only file system'),
    ('summary.json', errno.EROFS, 'Read-only'),
    ('curves.png', errno.EDQUOT, 'disk quota is used up'),
  ],
)
def test_what_cannot_be_written_loses_no_checkpoint_and_the_run_goes_on_later(
  run, done, kind, number, words
):
  with failing_files.failing(kind, 300, number), pytest.raises(runs.SaveError, match=words):
    _train(run)
  saved, _ = fakes.saved(run)
  # Each round that has its row has its checkpoint: none is lost.
  assert saved == (run / 'metrics.csv').read_text().count('\n') - 2
  assert saved == 10 if kind.endswith(('json', 'png')) else 6 < saved < 10
  _train(run)
  assert small_run.outcome(str(run)) == done[1]


def test_what_killed_processes_left_is_cleaned_up_and_the_users_files_stay(run):
  ours = ['.curves.abc_1234.png', '.summary.x7x7x7x7.json', '.metrics.00000000.csv']
  theirs = ['.curves.png', '.summary.mine.json', '.curves.abc_1234.png.txt', 'notes.abcdefgh.json']
  for name in (*ours, *theirs):
    (run / name).write_text('')
  small_run.train(str(run), 10)
  names = os.listdir(run)
  assert not set(ours) & set(names)
  assert set(theirs) <= set(names)
  assert os.listdir(run / 'checkpoints') == ['state.sqlite']


def test_a_config_that_cannot_note_a_change_ends_the_run_before_it_begins(run):
  with failing_files.failing('config.json', 0, errno.EROFS):
    _refused(run, r'config\.json cannot be written: Read-only')


def test_what_is_closed_holds_no_file(tmp_path):
  def held():
    return [file.path for file in psutil.Process().open_files() if str(tmp_path) in file.path]

  config = training.TrainingConfig(rounds=1, clients_per_round=1)
  files = run_files.RunFiles(config, str(tmp_path), 'a', {'query_state': np.zeros(2)}, ())
  assert {os.path.basename(path) for path in held()} >= {'metrics.csv', 'state.sqlite'}
  assert os.stat(tmp_path / STATE).st_mode & 0o777 == 0o600  # It has the seed of a noise.
  files.close()
  assert not held()


def test_every_checkpoint_is_on_the_disk_before_the_run_goes_on(tmp_path, monkeypatch):
  """Rows are synced before the checkpoint that relies on them; SQLite syncs its commits."""
  events = []
  fsync = os.fsync

  def spy(descriptor):
    events.append(os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}')))
    fsync(descriptor)

  class Spy(training.Callback):
    def checkpoint(self, round_number):
      events.append(round_number)

  monkeypatch.setattr(os, 'fsync', spy)
  _train(tmp_path / 'run', callbacks=[Spy()])
  for t in (4, 8, 10):
    assert events[events.index(t) - 1] == 'metrics.csv'


class _Writer(training.Callback):
  """Calls a function before round 8 of a run that saves every 4 rounds."""

  def __init__(self, write):
    self._write = write

  def round_begin(self, number):
    if number == 8:
      self._write()


@pytest.mark.parametrize('every', [4, 100])
def test_a_state_file_that_is_cut_during_a_run_is_noticed(run, every):
  cut = _Writer(lambda: os.truncate(run / STATE, 0))
  with pytest.raises(runs.SaveError, match='was cut short while the run was going on') as caught:
    _train(run, callbacks=[cut], rounds_per_checkpoint=every)
  assert '\n' not in str(caught.value)
  assert not summary_lib.is_complete(str(run), 10)


def test_a_state_file_that_is_overwritten_during_a_run_is_noticed_at_the_end(run):
  def overwrite():
    size = os.path.getsize(run / STATE)
    with open(run / STATE, 'r+b') as file:
      file.write(bytes(size))

  with pytest.raises(runs.SaveError, match='is not on the disk as it was saved') as caught:
    _train(run, callbacks=[_Writer(overwrite)])
  assert '\n' not in str(caught.value)
  assert not summary_lib.is_complete(str(run), 10)


@pytest.mark.parametrize('when', [8, 10])
@pytest.mark.parametrize('left', [0, 30])
def test_rows_that_are_cut_during_a_run_are_written_again(run, tmp_path, left, when):
  class Cutter(training.Callback):
    def round_begin(self, number):
      if number == when:
        os.truncate(run / 'metrics.csv', left)

  _train(run, callbacks=[Cutter()])
  _train(tmp_path / 'whole')
  assert fakes.rows(run)[7:] == fakes.rows(tmp_path / 'whole')[7:]
  assert len(fakes.rows(run)) == 11


def test_rows_that_are_cut_after_the_last_round_are_written_again(tmp_path):
  class Cutter(training.Callback):
    def checkpoint(self, number):
      if number == 10:
        os.truncate(tmp_path / 'metrics.csv', 0)

  _train(tmp_path, callbacks=[Cutter()])
  assert [int(row['round']) for row in fakes.rows(tmp_path)] == list(range(11))


def test_a_config_that_is_cut_during_a_run_is_written_again(run):
  before = config.read(str(run))
  _train(run, callbacks=[_Writer(lambda: os.truncate(run / 'config.json', 5))])
  now = config.read(str(run))
  assert (now['run_id'], now['data']) == (before['run_id'], before['data'])


@pytest.mark.parametrize('name', ['config.json', 'metrics.csv', STATE, 'summary.json'])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(run, name):
  (run / name).unlink()
  os.mkfifo(run / name)
  if name == 'summary.json':
    assert not summary_lib.is_complete(str(run), 6)
    return
  with pytest.raises(ValueError, match=r'it is no file|its checkpoint, .* is gone'):
    small_run.train(str(run), 10)


def test_a_folder_whose_path_is_too_long_for_sqlite_is_refused_before_it_is_made(tmp_path):
  def folder(length):
    """A folder whose state file's path has so many bytes."""
    missing = length - len(os.fsencode(state_file.path(str(tmp_path)))) - 1
    parts = ['é' * 50] * ((missing - 1) // 101)  # At least one byte is left for the last name.
    rest = missing - 101 * len(parts)
    return os.path.join(tmp_path, *parts, 'x' * rest)

  longest = folder(504)
  assert len(os.fsencode(state_file.path(longest))) == 504
  fakes.train(longest, 2)
  assert runs.load_run(longest).round_number == 2
  for path in (folder(505), folder(700)):
    with pytest.raises(runs.ResumeError, match=r'is too long by \d+ bytes: .* 504') as caught:
      fakes.train(path, 2)
    assert '\n' not in str(caught.value)
    assert not os.path.exists(path)
    with pytest.raises(runs.ResumeError, match='too long'):
      records.check_folder(path, config.Record({'rounds': 1}))
