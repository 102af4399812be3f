"""--log_to: what a tracker is given."""

from scripts.cli import resolve
from scripts.cli.groups import output


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
