"""When the compiled LSTM is recommended; what is refused: `resolve_test.py`."""

import shutil

import pytest

from scripts.cli import device_settings, resolve


def hint(task='shakespeare', **given):
  settings = resolve.resolve(task=task, algorithm='fed_avg', **given)
  return device_settings.lstm_hint(vars(settings), settings.task_options)


def test_who_trains_lstms_on_a_cpu_is_shown_the_faster_way(monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: '/usr/bin/' + name)
  for task in ('shakespeare', 'stackoverflow_nwp'):
    assert 'lstm=compiled' in hint(task)


@pytest.mark.parametrize(
  'given',
  [
    {'task': 'digits'},
    {'task_option': ('lstm=tensorflow',)},
    {'task_option': ('lstm=compiled',)},
    {'engine': 'native'},
    {'xla': True},
    {'mixed_precision': 'bfloat16'},
  ],
)
def test_who_has_chosen_or_cannot_is_not(given, monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: '/usr/bin/' + name)
  assert hint(**given) is None


def test_without_a_compiler_nothing_is_said(monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  assert hint() is None
