"""A run's folder: what is lost, damaged or full is reported in one line; nothing else is lost."""

import errno
import itertools
import os
import shutil

import numpy as np
import psutil
import pytest

from tests.faults import small_run
from tests.helpers import failing_files, fakes
from tff_adaptive import runs, training
from tff_adaptive.runs import run_files, state_store

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
    calls, folder = itertools.count(), str(tmp_path / str(num_rows))
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


def _train(run, **options):
  return fakes.train(run, 10, rounds_per_evaluation=1, **options)


@pytest.mark.parametrize(
  'name, is_renamed',
  [
    *(('.', True), ('checkpoints', False), (STATE, True), ('metrics.csv', False)),
    *(('metrics.csv', True), ('tensorboard', False), ('.', False)),
    *(('config.json', False), ('config.json', True)),
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
    ('events', errno.EROFS, 'written: Read-only'),
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
  found = os.listdir(run)
  assert not set(ours) & set(found)
  assert set(theirs) <= set(found)
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
