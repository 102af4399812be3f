"""--log_to: what is refused, and what a tracker is given."""

import pytest

from scripts.cli import resolve
from scripts.cli.groups import output


@pytest.mark.parametrize('name', ['mlflow', 'wandb'])
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(name, monkeypatch):
  monkeypatch.setattr(output.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError) as error:
    resolve.resolve({'log_to': [name]})
  assert f'pip install tff-adaptive[{name}]' in str(error.value)


def test_trackers_get_what_is_set_and_the_folders_name(monkeypatch):
  monkeypatch.setattr(output.importlib.util, 'find_spec', lambda name: name)
  settings = resolve.resolve({'log_to': ['wandb', 'wandb'], 'output_dir': 'runs/mine/'})
  (callback,) = settings.output.build('abc', settings.flat())
  assert type(callback).__name__ == 'WandbCallback'
  assert callback._run_id == 'abc'
  assert callback._name == 'mine'
  assert callback._parameters['algorithm'] == 'fed_yogi'
  assert callback._parameters['tau'] == settings.server['tau']
  assert 'mu' not in callback._parameters  # FedYogi has none.
