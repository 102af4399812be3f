"""Tables and figures against numbers worked out by hand."""

import os
import re

import numpy as np
import pytest

from scripts import report
from scripts.cli import settings as settings_lib
from tests.helpers import run_folders
from tff_adaptive.reports import report as report_lib
from tff_adaptive.runs import groups as groups_lib, run as run_lib


def _make(folder, values, **settings):
  """Writes a run with these accuracies, one every other round from round 0."""
  run_folders.make(folder, values, every=2, **settings)


@pytest.fixture
def folder(tmp_path):
  _make(tmp_path / 'a0', [0.0, 0.4, 0.8], seed=0)
  _make(tmp_path / 'a1', [0.0, 0.6, 0.6], seed=1)
  _make(tmp_path / 'b', [0.1, 0.2, 0.3], algorithm='ada_best', mu=0.02, server_optimizer='yogi')
  return str(tmp_path)


def test_labels_name_only_what_does_not_follow_from_the_rest(folder, tmp_path):
  _make(tmp_path / 'c1', [0.0, 0.1, 0.2], algorithm='fed_yogi', server_optimizer='yogi', tau=0.1)
  _make(tmp_path / 'c2', [0.0, 0.1, 0.2], algorithm='fed_yogi', server_optimizer='yogi', tau=0.2)
  found = run_lib.find_runs([folder])
  groups = {label: len(members) for label, members in groups_lib.group(found).items()}
  assert groups == {'FedAvg': 2, 'AdaBest x Yogi': 1, 'FedYogi, tau=0.1': 1, 'FedYogi, tau=0.2': 1}
  with pytest.raises(ValueError, match="'size'"):
    groups_lib.group(found, ['size'])


def test_runs_that_differ_in_what_touches_no_number_are_repetitions(tmp_path):
  _make(tmp_path / '0', [0.0, 0.1], seed=0)
  _make(tmp_path / '1', [0.0, 0.1], seed=1, **dict.fromkeys(settings_lib.CHANGE_NO_NUMBER, 1))
  found = run_lib.find_runs([str(tmp_path)])
  for run in found:
    run.config['change_no_number'].extend(settings_lib.CHANGE_NO_NUMBER)
  assert [len(members) for members in groups_lib.group(found).values()] == [2]


def test_report_writes_its_table_and_figure(folder, tmp_path, capsys):
  output = str(tmp_path / 'out' / 'table')
  assert report.main(['report.py', folder, f'--output={output}', '--level=paper=0.7']) == 0
  with open(output + '.md') as file:
    assert file.read() == capsys.readouterr().out
  assert os.path.getsize(output + '.png') > 1000
  with open(output + '.csv') as file:
    lines = file.read().splitlines()
  assert lines[0] == 'label,round,validation_accuracy_mean,validation_accuracy_std'
  assert lines[1:4] == ['FedAvg,0,0,0', 'FedAvg,2,0.5,0.141421', 'FedAvg,4,0.7,0.141421']


def test_where_takes_some_of_the_runs(folder, tmp_path, capsys):
  run_folders.make(tmp_path / 'c', [0.1, 0.5], seed=5, task_option=['alpha=0.5'])
  for conditions in (['algorithm=ada_best', 'mu=2e-2'], ['task_option=alpha=0.5']):
    assert report.main(['report.py', folder, *(f'--where={c}' for c in conditions)]) == 0
    assert capsys.readouterr().out.count('\n') == 3


def test_a_run_without_rounds_is_left_out_and_reported(folder, tmp_path, capsys):
  for name, content in (('new', None), ('newer', ''), ('header', 'round,train_loss\n')):
    _make(tmp_path / 'more' / name, [0.0])
    path = tmp_path / 'more' / name / 'metrics.csv'
    path.unlink()
    if content is not None:
      path.write_text(content)
  assert report.main(['report.py', folder]) == 0
  captured = capsys.readouterr()
  assert captured.out.count('\n') == 4
  assert captured.err.count(' has no rounds yet') == 3
  assert report.main(['report.py', f'{folder}/more']) == 2
  assert 'none of the runs has rounds yet' in capsys.readouterr().err


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -float('inf')])
def test_a_run_that_diverged_has_its_place_in_table_and_figure(folder, tmp_path, value, capsys):
  _make(tmp_path / 'a2', [0.0, 0.5, value], seed=2)
  assert report.main(['report.py', folder, f'--output={tmp_path}/x']) == 0
  captured = capsys.readouterr()
  assert f'| {np.mean([0.8, value]):.4f} ± nan |' in captured.out
  assert '| AdaBest x Yogi | 1 | 4 | 0.2500 |' in captured.out
  assert captured.err == ''


def test_every_format_is_written_and_the_page_needs_no_other_file(folder, tmp_path):
  formats = ','.join(report_lib.FORMATS)
  output = tmp_path / 'out' / 'all'
  flags = [f'--output={output}', f'--formats={formats}', '--title=A & B']
  assert report.main(['report.py', folder, *flags]) == 0
  for ending in report_lib.FORMATS:
    assert (tmp_path / 'out' / f'all.{ending}').stat().st_size > 100
  page = (tmp_path / 'out' / 'all.html').read_text()
  assert '<title>A &amp; B</title>' in page
  assert page.count('<svg') == page.count('</svg>') == 1
  assert page.count('<path') > 10  # The curves are drawn into it.
  assert '<td>AdaBest x Yogi</td>' in page
  fetched = re.findall(r'(?:src|xlink:href|href)="([^"#][^"]*)"|url\(([^#)][^)]*)\)|@import', page)
  assert fetched == []


@pytest.mark.parametrize('form', ['comparison', 'rates', 'sensitivity'])
def test_dollar_signs_enclose_no_formula(tmp_path, form):
  text = r'$\frac$ of $\x$'
  for seed, rate in enumerate((0.1, 1.0)):
    run_folders.make(
      tmp_path / 'runs' / str(seed),
      [0.1, 0.5],
      algorithm=f'/s{seed}/{text}.py:f',
      tau=rate,
      client_learning_rate=rate,
      server_learning_rate=rate,
    )
  more = {'comparison': [f'--level={text}=0.3'], 'sensitivity': ['--parameter=tau']}.get(form, [])
  flags = [f'--form={form}', f'--title={text}', f'--output={tmp_path}/x', '--formats=svg', *more]
  assert report.main(['report.py', str(tmp_path / 'runs'), *flags]) == 0
  assert (tmp_path / 'x.svg').stat().st_size > 1000


def test_the_forms_of_the_papers_are_asked_for_by_name(tmp_path, capsys):
  for rate in (0.1, 1.0):
    run_folders.make(
      tmp_path / 'runs' / str(rate),
      [0.1, 0.5 * rate],
      task='digits',
      task_option=[],
      tau=rate,
      client_learning_rate=rate,
      server_learning_rate=rate,
      clients_per_round=6,
      data={'clients': 60},
      test={'test_accuracy': 0.4 * rate},
    )

  def shown(*flags):
    assert report.main(['report.py', str(tmp_path / 'runs'), *flags]) == 0
    return capsys.readouterr().out

  assert '| FedAvg | 0.1 (5.0) | 1 (50.0) |' in shown('--form=rates', '--label_by=algorithm')
  assert '| FedAvg | 5.00 | **50.00** |' in shown('--form=sensitivity', '--parameter=tau')
  assert '| digits | **50.0** |' in shown('--form=tasks')
  output = tmp_path / 'table'
  assert '| 10 % | digits |  | **40.00** |' in shown(
    '--form=participation', f'--output={output}', '--formats=tex,csv,png'
  )
  assert (tmp_path / 'table.tex').exists()
  assert not (tmp_path / 'table.png').exists()  # It has no figure.


@pytest.mark.parametrize(
  'flags',
  [
    ['--form=rates'],
    ['--form=sensitivity', '--parameter=client_learning_rate'],
    ['--form=tasks'],
    ['--form=participation'],
    ['--form=crossed', '--rows=task', '--columns=algorithm'],
  ],
)
def test_a_run_that_was_not_evaluated_yet_is_left_out_and_named(tmp_path, capsys, flags):
  for rate, values in ((0.1, [0.1, 0.4]), (0.2, [0.1, 0.5]), (0.3, [0.1])):
    run_folders.make(
      tmp_path / str(rate),
      values,
      task='digits',
      client_learning_rate=rate,
      server_learning_rate=rate,
      clients_per_round=6,
      rounds=1,
      data={'clients': 60},
      test={'test_accuracy': 0.4},
    )
  assert report.main(['report.py', str(tmp_path), *flags]) == 0
  captured = capsys.readouterr()
  assert captured.err == f'Left out: {tmp_path}/0.3 has not been evaluated after round 0 yet.\n'
  assert '0.3' not in captured.out


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--level=foo'], 'write it as NAME='),
    (['--level=foo=x'], 'write it as NAME='),
    (['--where=mu=0.1'], 'none of the 3 runs has mu=0.1'),
    (['--metric=validation_acuracy'], 'did you mean validation_accuracy?'),
    (['--log_scale=loss'], "'loss' is to be logarithmic"),
    (['--output=/proc/x'], '--output=/proc/x cannot be written to (No such file or directory).'),
    (['--form=bars'], '--form=bars: give one of comparison,'),
    (['--x=time'], '--x=time: give one of round,'),
    (['--formats='], '--formats=: give one or more of md,'),
    (['--where=seed=0', '--where=seed=1'], 'runs has seed=0 and seed=1'),
    (['--formats=md,doc'], '--formats=doc: give one of md,'),
    (['--form=tasks', '--target=1'], '--target has no effect on --form=tasks'),
    (['--form=sensitivity'], 'needs --parameter'),
    (['--form=tasks', '--formats=png,svg'], '--form=tasks has tables only: give one of md, csv,'),
    (['--form=rates', '--metric=a,b'], 'takes one --metric'),
    (['--where=tau'], 'write it as NAME='),
    (['--x=virtual_seconds'], "no column 'virtual_seconds'"),
  ],
)
def test_bad_flags_are_refused_in_one_line(folder, tmp_path, capsys, flags, words):
  assert report.main(['report.py', folder, f'--output={tmp_path}/x/y', *flags]) == 2
  error = capsys.readouterr().err
  assert words in error
  assert error.count('\n') == 1
  assert not (tmp_path / 'x').exists()


def test_folders_and_an_output_for_formats_are_needed(folder, capsys):
  for arguments, words in (
    ([], "give at least one run's folder"),
    ([folder, '--formats=pdf,svg'], '--formats says what --output writes: give --output=PATH'),
  ):
    assert report.main(['report.py', *arguments]) == 2
    assert words in capsys.readouterr().err
