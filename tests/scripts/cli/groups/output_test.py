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


def test_tasks_of_different_files_have_different_folders_by_default(tmp_path, monkeypatch):
  for folder in ('a', 'b'):
    (tmp_path / folder).mkdir()
  monkeypatch.chdir(tmp_path)
  references = ['mine.py:load', 'other.py:load', 'a/mine.py:load', 'b/mine.py:load']
  folders = [resolve.resolve(task=reference).output.output_dir for reference in references]
  assert folders[:2] == ['runs/mine_load_fed_yogi', 'runs/other_load_fed_yogi']
  assert len(set(folders)) == 4
  again = resolve.resolve(task=f'{tmp_path}/a/mine.py:load')  # Wherever the path begins.
  assert again.output.output_dir == folders[2]
  assert resolve.resolve().output.output_dir == 'runs/digits_fed_yogi'


def test_a_quiet_run_says_nothing_on_its_progress(capsys):
  resolve.resolve(quiet=True).output.say('a line')
  assert capsys.readouterr().err == ''
  resolve.resolve().output.say('a line')
  assert capsys.readouterr().err == 'a line\n'
