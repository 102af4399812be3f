"""Facts about the names and the suggestions for mistyped ones."""

import subprocess
import sys

import pytest

from tff_adaptive import names, schedules


@pytest.mark.parametrize(
  'typed, expected',
  [
    ('fed_yogy', 'fed_yogi'),
    ('FedYogi', 'fed_yogi'),
    ('FedAvg', 'fed_avg'),
    ('adabest', 'ada_best'),
    ('scaffold-m', 'scaffold_m'),
  ],
)
def test_the_nearest_name_comes_first(typed, expected):
  assert names.nearest(typed, names.ALGORITHMS)[0] == expected


def test_case_hyphens_and_underscores_do_not_matter():
  assert names.nearest('S-_-G D', names.SERVER_OPTIMIZERS)[0] == 'sgd'


def test_a_name_like_none_has_no_neighbour():
  assert names.nearest('zzz', names.ALGORITHMS) == []
  assert names.unknown('schedule', 'zzz', ['a', 'b']) == (
    "unknown schedule 'zzz'. Choose one of: a, b."
  )


def test_an_unknown_name_is_told_with_its_neighbours_and_all_names():
  assert names.unknown('server optimizer', 'addam', names.SERVER_OPTIMIZERS) == (
    "unknown server optimizer 'addam'. Did you mean adam? "
    'Choose one of: sgd, sgdm, adagrad, adam, yogi.'
  )


def test_every_schedule_named_can_be_built_and_no_other():
  for name in names.SCHEDULES:
    assert schedules.build(name, 0.1)(0) == pytest.approx(0.1)
  assert set(schedules._BY_NAME) == set(names.SCHEDULES)


def test_names_and_schedules_are_had_without_tensorflow():
  code = (
    'import sys; from tff_adaptive import names, schedules; schedules.build("constant", 1.0)(3); '
    'sys.exit("tensorflow" in sys.modules or "tensorflow_federated" in sys.modules)'
  )
  subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
