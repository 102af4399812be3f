"""A form of reports is one file: its name, help, options and function."""

import dataclasses
import subprocess
import sys

import pytest

from scripts import report as command
from tests.helpers import run_folders
from tff_adaptive.reports.forms import catalog, entry


def test_the_forms_are_those_of_the_folder_and_the_default_is_the_first():
  names = ['comparison', 'clients', 'crossed', 'ledger', 'rates', 'tasks']
  assert list(catalog.FORMS) == names
  assert all(form.name == name for name, form in catalog.FORMS.items())
  assert catalog.takers('label_by') == ['comparison', 'clients', 'ledger', 'rates']


@pytest.mark.parametrize('form', catalog.FORMS.values(), ids=lambda form: form.name)
def test_a_form_requires_only_options_that_it_takes(form):
  assert {*form.required} <= {option.name for option in form.options}
  assert bool(form.required) == bool(form.hint)


def test_a_module_of_the_folder_is_a_form_with_its_own_option(tmp_path, capsys):
  """In a process of its own, where the folder of the forms has one more module."""
  run_folders.make(tmp_path / 'run', [0.1, 0.5])
  module = tmp_path / 'forms' / 'counted.py'
  module.parent.mkdir()
  module.write_text(
    'from tff_adaptive.reports import report\n'
    'from tff_adaptive.reports.forms import entry\n\n\n'
    'def _build(runs, given, title):\n'
    "  rows = [[given['unit'], str(len(runs))]]\n"
    "  return report.Report([report.Table(['unit', 'number'], rows, title=title)], '')\n\n\n"
    "UNIT = entry.Option('unit', 'What is counted.', default='runs')\n"
    "FORM = entry.Form('counted', 'counts.', {'unit': 'pieces'}, (UNIT,), _build)\n"
  )
  code = (
    'import sys\n'
    'from tff_adaptive.reports import forms\n'
    f'forms.__path__.append({str(module.parent)!r})\n'
    'from scripts import report\n'
    'sys.exit(report.main(sys.argv))\n'
  )
  flags = ['--form=counted', '--unit=pieces', '--title=Mine']
  program = [sys.executable, '-c', code, str(tmp_path / 'run'), *flags]
  done = subprocess.run(program, capture_output=True, text=True, check=True)
  assert done.stdout == '**Mine**\n\n| unit | number |\n| --- | ---: |\n| pieces | 1 |\n'
  assert command.main(['report.py', str(tmp_path / 'run'), '--form=counted']) == 2
  assert "unknown form 'counted'" in capsys.readouterr().err


def test_an_option_of_other_forms_is_refused_and_says_which_take_it(tmp_path, capsys):
  run_folders.make(tmp_path / 'run', [0.1, 0.5])
  for flag, forms in (
    ('--x=round', 'comparison'),
    ('--label_by=seed', 'comparison or clients or ledger or rates'),
    ('--metric=validation_accuracy', 'comparison or clients or crossed or rates'),
  ):
    assert command.main(['report.py', str(tmp_path / 'run'), '--form=tasks', flag]) == 2
    name = flag.partition('=')[0]
    message = f'{name} needs --form={forms}: give that, or leave {name} out.'
    assert message in capsys.readouterr().err


def test_help_has_an_example_and_the_words_of_each_form(capsys):
  assert command.main(['report.py', '--help']) == 0
  help_text = ' '.join(capsys.readouterr().out.split())
  for form in catalog.FORMS.values():
    assert form.help in help_text
    for name, value in form.example.items():
      assert f'--{name}={value}' in help_text
  assert 'scripts/report.py runs --form=tasks --output=results/table --formats=md,tex' in help_text


def test_two_options_of_one_name_must_be_the_same(monkeypatch):
  form = catalog.FORMS['tasks']
  other = dataclasses.replace(form, options=(entry.Option('window', 'Another.'),))
  monkeypatch.setattr(catalog, 'FORMS', {**catalog.FORMS, 'tasks': other})
  with pytest.raises(ValueError, match="different options called 'window'"):
    catalog.options()
