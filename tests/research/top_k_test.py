"""research/top_k.py: the ways to select agree, and bad flags are refused."""

from research import top_k
from tests.helpers import compiler


@compiler.NEEDED
def test_all_ways_are_measured(capsys):
  assert top_k.main(['top_k.py', '--sizes=999', '--shares=0.1', '--repeats=1', '--threads=0']) == 0
  output = capsys.readouterr().out
  for way in ('histograms', 'compiled', 'tf.math.top_k', 'np.argpartition'):
    assert f'| 999 | 0.1 | {way} |' in output.replace('\\', '')


def test_bad_flags_are_refused(capsys):
  assert top_k.main(['top_k.py', '--shares=1.5']) == 2
  assert top_k.main(['top_k.py', '--sizes=0']) == 2
  assert 'give numbers in (0, 1)' in capsys.readouterr().err
