"""An error of user code travels with its type and its place in the user's file."""

import pickle

import pytest

from tff_adaptive._utils import user_code
from tff_adaptive.engine.cluster import errors, ray_worker


def test_a_failure_comes_back_with_type_and_place(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text('def fail():\n  raise KeyError(5)\n')
  fail, _ = user_code.load(f'{path}:fail')
  with pytest.raises(KeyError) as caught:
    fail()
  back = pickle.loads(pickle.dumps(errors.Failure.of(caught.value, 'process 7')))
  assert back.line == f'process 7: KeyError: 5 ({path}, line 2)'
  with pytest.raises(KeyError) as raised:
    raise back.original() from back
  assert user_code.place(raised.value) == (str(path), 2)
  assert str(raised.value.__cause__).startswith('process 7:\nTraceback')


LOCAL = type('Local', (Exception,), {'__reduce__': None})  # A TypeError, as with a lock.


@pytest.mark.parametrize('error', [LOCAL('shut'), SystemExit('shut')])
def test_an_error_that_must_not_be_raised_here_comes_back_as_its_line(error):
  back = pickle.loads(pickle.dumps(errors.Failure.of(error, 'process 7')))
  with pytest.raises(errors.WorkerError, match=f'process 7: {type(error).__name__}: shut'):
    raise back.original()


def test_user_code_that_exits_in_a_worker_is_an_error_there():
  with pytest.raises(errors.Failure, match='SystemExit: 3'), ray_worker._as_text():
    raise SystemExit(3)
