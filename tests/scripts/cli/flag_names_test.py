"""Which flag is meant by another name."""

from scripts.cli import flag_names, flags


def test_names_of_other_programs_stand_for_flags_that_exist():
  names = {flag.name for flag in flags.table()}
  for other, meant in flag_names._ELSEWHERE.items():
    assert other not in names
    assert set(meant) <= names, other


def test_a_command_without_the_flag_gets_those_that_are_written_alike():
  assert flag_names.hint('lr', ['rounds', 'client_learning_rate']) == (
    'did you mean --client_learning_rate?'
  )
  assert flag_names.hint('round', ['rounds', 'task']) == 'did you mean --rounds?'
  assert flag_names.hint('lr', ['title']) == ''
  assert flag_names.called('Learning-Rate', 'server_learning_rate')
  assert not flag_names.called('rounds', 'rounds')
