"""scripts/partition_report.py, as a user runs it."""

import dataclasses

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from scripts import partition_report


def test_partition_report_of_classes_and_of_numbers(tmp_path, capsys):
  output = tmp_path / 'sub' / 'digits'
  assert partition_report.main(['x', '--task=digits', f'--output={output}']) == 0
  printed = capsys.readouterr().out
  assert (tmp_path / 'sub' / 'digits.md').read_text() == printed
  assert '| examples | 1438 |' in printed
  assert '| total variation | 0.539 |' in printed
  assert (tmp_path / 'sub' / 'digits.png').stat().st_size > 5000
  assert partition_report.main(['x', '--task=least_squares', f'--output={output}']) == 0
  printed = capsys.readouterr().out
  assert 'total variation' not in printed
  task = tasks.load('least_squares')
  mean = task.train.load_all()['y'].mean(dtype=np.float64)
  error = np.abs(task.validation['y'] - mean).mean()
  words = f'{mean:.4g}; always predicting it has mean absolute error {error:.4g} in validation'
  assert f'| mean of the targets | {words} |' in printed
  assert partition_report.main(['x', '--task=digit']) == 2


@pytest.mark.parametrize(
  'flag, output, words',
  [
    ('--task_option=alpha=0', 'new/digits', 'alpha is 0'),
    ('--task_option=alpha=1', 'new/', 'new/ is a folder: name'),
    ('--seed=-1', 'new/digits', '--seed must be'),
    ('--clients=0', 'new/digits', '--clients must be'),
  ],
)
def test_what_is_refused_leaves_nothing_behind(tmp_path, capsys, flag, output, words):
  flags = ['--task=digits', flag, f'--output={tmp_path}/{output}']
  assert partition_report.main(['x', *flags]) == 2
  printed, error = capsys.readouterr()
  assert (words in error, printed) == (True, '')
  assert error.count('\n') == 1
  assert not list(tmp_path.iterdir())


def test_classes_have_their_names_and_those_of_others_are_no_html(monkeypatch):
  labels = ['dog', 'cat', 'cat', 'cat']
  task = tasks.from_arrays(
    np.eye(4), labels, [1, 1, 2, 2], validation_by='examples', validation=0.5
  )
  text, counts, names = partition_report.describe(task)
  assert names == ['cat', 'dog']
  assert f'cat: {counts[:, 0].sum()}, dog: {counts[:, 1].sum()} |' in text
  monkeypatch.setattr(partition_report, '_MOST', 1)  # Of many classes some are shown.
  assert f'cat: {counts[:, 0].sum()} and 1 more |' in partition_report.describe(task)[0]
  task = dataclasses.replace(tasks.load('least_squares'), name='<b>\rx', source='<img>')
  text = partition_report.describe(task)[0]
  assert '<' not in text
  assert text.startswith('**Clients of &lt;b> x**\n')


def test_several_labels_have_the_more_frequent_value_of_each():
  late = np.arange(40) % 4 == 0
  ill = np.arange(40) % 8 < 5
  clients = np.arange(40) // 10
  task = tasks.from_arrays(
    np.eye(40),
    np.stack([late, ill], 1).astype(int),
    clients,
    targets=['late', 'ill'],
    validation=(np.eye(40)[:2], [[0, 1], [1, 0]]),
  )
  text = partition_report.describe(task)[0]
  words = 'late: 0 (75.0%), ill: 1 (62.5%) of the training examples; always predicting these has'
  assert f'| majority values | {words} accuracy 0.5000 on the validation data |' in text
