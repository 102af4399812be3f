"""Tables and figures against numbers worked out by hand."""

import errno
import os
import re

import pytest

from scripts import _streams, report
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
  runs = run_lib.find_runs([folder])
  groups = {label: len(members) for label, members in groups_lib.group(runs).items()}
  assert groups == {'FedAvg': 2, 'AdaBest x Yogi': 1, 'FedYogi, tau=0.1': 1, 'FedYogi, tau=0.2': 1}
  with pytest.raises(ValueError, match="'size'"):
    groups_lib.group(runs, ['size'])


def test_runs_that_differ_in_what_touches_no_number_are_repetitions(tmp_path):
  _make(tmp_path / '0', [0.0, 0.1], seed=0)
  _make(tmp_path / '1', [0.0, 0.1], seed=1, **dict.fromkeys(settings_lib.CHANGE_NO_NUMBER, '1'))
  runs = run_lib.find_runs([str(tmp_path)])
  for run in runs:
    run.config['change_no_number'].extend(settings_lib.CHANGE_NO_NUMBER)
  assert [len(members) for members in groups_lib.group(runs).values()] == [2]


def test_what_is_measured_once_has_no_curve(folder, capsys):
  assert report.main(['report.py', folder, '--metric=test_accuracy']) == 2
  assert 'measured once, after the last round, and has no curve' in capsys.readouterr().err


def test_what_is_in_a_file_need_not_be_printed(folder, tmp_path, monkeypatch):
  lost = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  monkeypatch.setattr(_streams, 'output_error', lambda: lost)
  assert report.main(['report.py', folder]) == 1
  assert report.main(['report.py', folder, f'--output={tmp_path}/all']) == 0


def test_every_format_is_written_and_the_page_needs_no_other_file(folder, tmp_path, capsys):
  output = tmp_path / 'out' / 'all'
  flags = [f'--output={output}', f'--formats={",".join(report_lib.FORMATS)}', '--title=A & B']
  assert report.main(['report.py', folder, *flags, '--level=paper=0.7']) == 0
  contents = {end: output.with_suffix(f'.{end}').read_bytes() for end in report_lib.FORMATS}
  assert all(len(content) > 100 for content in contents.values())
  assert contents['md'].decode() == capsys.readouterr().out
  assert contents['csv'].decode().splitlines()[:4] == [
    'label,round,validation_accuracy_mean,validation_accuracy_std',
    'FedAvg,0,0,0',
    'FedAvg,2,0.5,0.141421',
    'FedAvg,4,0.7,0.141421',
  ]
  page = contents['html'].decode()
  assert '<title>A &amp; B</title>' in page
  assert '\\caption{A \\& B.' in contents['tex'].decode()
  assert page.count('<svg') == page.count('</svg>') == 1
  assert page.count('<path') > 10  # The curves are drawn into it.
  assert re.search('<td ?>AdaBest x Yogi</td>', page)
  fetched = re.findall(r'(?:src|xlink:href|href)="([^"#][^"]*)"|url\(([^#)][^)]*)\)|@import', page)
  assert fetched == []


@pytest.mark.parametrize('form', ['comparison', 'tasks', 'crossed'])
def test_labels_say_what_renaming_says(tmp_path, capsys, form):
  for number, tau in enumerate((0.1, 0.2)):
    _make(tmp_path / f'{number}', [0.0, 0.4, 0.8], algorithm='fed_yogi', tau=tau, task='digits')
  _make(tmp_path / 'c', [0.0, 0.4, 0.8], algorithm='fed_adam', tau=0.1, task='digits')
  _make(tmp_path / 'd', [0.0, 0.4, 0.8], algorithm='fed_adam', tau=0.2, task='digits')
  more = ['--rows=algorithm', '--columns=tau'] if form == 'crossed' else []
  flags = [f'--form={form}', *more, '--rename=FedYogi=Ours', '--rename=FedAdam=Adam']
  assert report.main(['report.py', str(tmp_path), *flags]) == 0
  output = capsys.readouterr().out
  assert 'Ours' in output
  assert 'Adam' in output
  assert 'Fed' not in output


def test_a_run_without_rounds_is_left_out_and_reported(folder, tmp_path, capsys):
  for name, content in (('new', None), ('newer', ''), ('header', 'round,train_loss\n')):
    _make(tmp_path / 'more' / name, [0.0])
    path = tmp_path / 'more' / name / 'metrics.csv'
    path.unlink()
    if content is not None:
      path.write_text(content)
  assert (
    report.main(['report.py', folder, '--window=3', '--columns=mean,reached', '--target=0.5']) == 0
  )
  captured = capsys.readouterr()
  assert captured.out.count('\n') == 12  # A table of two rows, and one of a difference.
  assert 'mean of last 3 rounds' in captured.out
  assert captured.err.count(' has no rounds yet') == 3
  assert report.main(['report.py', f'{folder}/more']) == 2
  assert 'none of the runs has rounds yet' in capsys.readouterr().err


def _rates(folder, rates, **settings):
  """A run for each rate; the last of three was not evaluated after round 0 yet."""
  same = dict(task='digits', task_option=[], clients_per_round=6, data={'clients': 60}, rounds=1)
  for rate in rates:
    of_rate = dict.fromkeys(('tau', 'client_learning_rate', 'server_learning_rate'), rate)
    of_rate['test'] = {'test_accuracy': 0.4 * rate}
    values = [0.1, 0.5 * rate] if rate < 2 else [0.1]
    run_folders.make(folder / str(rate), values, **{**same, **of_rate, **settings})


@pytest.mark.parametrize(
  'flags',
  [
    ['--level=$\\frac$ of $\\x$=0.3'],
    ['--form=rates'],
    ['--form=crossed', '--rows=algorithm', '--columns=tau'],
  ],
)
def test_dollar_signs_enclose_no_formula(tmp_path, flags):
  text = r'$\frac$ of $\x$'
  _rates(tmp_path / 'runs', (0.1, 1.0), algorithm=f'/s/{text}.py:f')
  flags = [*flags, f'--title={text}', f'--output={tmp_path}/x', '--formats=svg']
  assert report.main(['report.py', str(tmp_path / 'runs'), *flags]) == 0
  assert (tmp_path / 'x.svg').stat().st_size > 1000


@pytest.mark.parametrize(
  'flags, row',
  [
    (['--form=rates', '--label_by=algorithm'], '| FedAvg | 0.1 (5.0) | 1 (50.0) |'),
    (['--form=crossed', '--rows=algorithm', '--columns=tau'], '| FedAvg | 5.00 | **50.00** |'),
    (['--form=tasks'], '| digits | **50.0** |'),
    (
      ['--form=crossed', '--rows=task,seed', '--columns=algorithm', '--metric=test_accuracy'],
      '| digits | 0 | **40.00** |',
    ),
  ],
)
def test_the_forms_of_the_papers_leave_out_what_was_not_evaluated_yet(tmp_path, capsys, flags, row):
  _rates(tmp_path / 'runs', (0.1, 1.0, 2.0))
  output = tmp_path / 'table'
  flags = [*flags, f'--output={output}', '--formats=tex,csv,png']
  assert report.main(['report.py', str(tmp_path / 'runs'), *flags]) == 0
  printed = capsys.readouterr()
  left_out = f'{tmp_path}/runs/2.0 has not been evaluated after round 0 yet.'
  assert printed.err == f'Left out: {left_out}\n'
  assert row in printed.out
  assert (tmp_path / 'table.tex').exists()
  assert (tmp_path / 'table.png').exists() == ('--form=rates' in flags or '--columns=tau' in flags)


def test_the_form_of_clients_is_of_the_tasks_metric_and_any_labels(tmp_path, capsys):
  run_folders.make(tmp_path / 'a', [0.1, 0.2], task_option=['k=1'])
  (tmp_path / 'a' / 'client_evaluations').mkdir()
  lines = 'group,client,examples,accuracy\ntest,a,4,0.25\ntest,b,4,0.75\n'
  (tmp_path / 'a' / 'client_evaluations' / 'round_000001.csv').write_text(lines)
  flags = ['--form=clients', '--clients=test', '--label_by=seed']
  assert report.main(['report.py', str(tmp_path), *flags]) == 0
  assert '| seed=0 | 0.5000 | 0.2500 |' in capsys.readouterr().out


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--level=foo'], 'write it as NAME='),
    (['--where=mu=0.1'], 'none of the 3 runs has mu=0.1'),
    (['--where=task_option=alpha=0.5'], 'none of the 3 runs has task_option=alpha=0.5'),
    (['--metric=validation_acuracy'], 'did you mean validation_accuracy?'),
    (['--log_scale=loss'], "'loss' is to be logarithmic"),
    (['--output=/proc/x'], '--output=/proc/x cannot be written to (No such file or directory)'),
    (['--form=bars'], "--form: unknown form 'bars'. Choose one of: comparison, clients"),
    (['--where=seed=0', '--where=seed=1'], 'runs has seed=0 and seed=1'),
    (['--formats=md,doc'], '--formats=md,doc: give one or more of md,'),
    (['--form=tasks', '--target=1'], '--target needs --form=comparison: give that, or'),
    (['--form=crossed', '--rows=algorithm'], 'needs --rows and --columns'),
    (['--form=rates', '--metric=a,b'], 'takes one --metric'),
    (['--rename==Ours'], 'write it as NAME=VALUE'),
    (['--level=foo=x'], '--level=foo=x: give a number'),
    (['--form=crossed', '--rows=seed', '--columns=algorithm', '--formats=svg'], 'has tables only'),
    (['--rename=AdaBset=Ours'], "--rename=AdaBset=Ours: no label has the part 'AdaBset'"),
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
  assert report.main(['report.py']) == report.main(['report.py', folder, '--formats=pdf']) == 2
  error = capsys.readouterr().err
  assert "give at least one run's folder" in error
  assert '--formats needs --output: give that, or leave --formats out' in error
