"""What is shown of a run on a terminal and elsewhere."""

import io
import re
import types

import pytest

from tff_adaptive.training import callbacks, progress

ROW = {'train_loss': 0.0119, 'train_accuracy': 1.0, 'validation_accuracy': 0.9805}


@pytest.mark.parametrize('width', [60, 80, 110])
def test_a_terminal_shows_the_round_whatever_its_width(width, monkeypatch):
  monkeypatch.setenv('COLUMNS', str(width))
  monkeypatch.setenv('TERM', 'xterm')
  now = [0.0]
  monkeypatch.setattr(progress, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))
  stream = io.StringIO()
  stream.isatty = lambda: True
  bar = progress.Progress(stream=stream)
  bar.begin(callbacks.RunInfo(None, 0, 1200, print))
  bar.message('[a]')
  for r in range(1, 5):
    now[0] = r / 2  # Seconds: the width of the speed is that of its number.
    bar.round_end({'round': r, **ROW})
  bar.close()
  text = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', stream.getvalue()).rstrip().split('\r')[-1]
  assert text.startswith('round 4/1200')
  assert ('━' in text) == (width >= 110)
  for part, is_there in (('[a]', True), ('Resumed', False), ('\x1b[?25h', True)):
    assert (part in stream.getvalue()) == is_there
  assert '0.0119' in text
  if width >= 80:
    assert re.search(r'0\.9805 .*/s +\d+:\d\d:\d\d left', text)


def test_the_first_round_reports_no_speed_and_the_second_its_own(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  written = io.BytesIO()
  monkeypatch.setattr(progress, '_ROUNDS_OF_RATE', 2)
  bar = progress.Progress(stream=io.TextIOWrapper(written))  # It keeps lines until a flush.
  bar.begin(callbacks.RunInfo(None, 4, 10, print))
  bar.round_end({'round': 3, **ROW})
  for r, now[0] in ((4, 5.0), (5, 15.0), (6, 25.0), (7, 65.0), (8, 74.5), (10, 75.0)):
    bar.round_end({'round': r, **ROW})
  resumed, *lines = written.getvalue().decode().splitlines()
  assert resumed == 'Resumed after round 3.'
  assert lines[1] == 'round 4/10  loss 0.0119  accuracy 1.0000  val 0.9805'
  assert [line.split('  ')[-2:] for line in lines[2:]] == [
    ['0.10/s', '0:00:50 left'],
    ['0.10/s', '0:00:40 left'],
    ['0.04/s', '0:01:15 left'],
    ['0.20/s', '0:00:00 left'],  # The last one, though soon after the one before.
  ]


def test_a_regression_whose_metric_is_the_loss_shows_it_once():
  stream = io.StringIO()
  bar = progress.Progress(metric='loss', stream=stream)
  bar.begin(callbacks.RunInfo(None, 1, 1, print))
  bar.round_end({'round': 1, 'train_loss': 0.25, 'validation_loss': 0.5})
  bar.close()
  assert stream.getvalue().splitlines()[-1] == 'round 1/1  loss 0.2500  val 0.5000'


class _Broken(io.StringIO):
  """A terminal that is gone."""

  def isatty(self):
    return True

  def write(self, text):
    raise OSError(5, 'Input/output error')


def test_a_terminal_that_is_gone_ends_no_run(monkeypatch):
  bar = progress.Progress(stream=_Broken())
  bar.begin(callbacks.RunInfo(None, 3, 1200, print))
  bar.message('é')
  bar.round_end({'round': 3, **ROW})
  bar.close()


def test_without_standard_error_nothing_is_shown(monkeypatch):
  monkeypatch.setattr(progress.sys, 'stderr', None)
  bar = progress.Progress()
  bar.begin(callbacks.RunInfo(None, 0, 2, print))
  bar.round_end({'round': 1, **ROW})
  bar.close()
