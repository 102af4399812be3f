"""HParams, as TensorBoard's own plugin reads them."""

from tensorboard.backend.event_processing import event_file_loader
from tensorboard.plugins.hparams import metadata

from scripts.cli import hparams


def _content(folder):
  """What the plugin reads in a folder."""
  (file,) = folder.glob('*hparams')
  events = event_file_loader.EventFileLoader(str(file)).Load()
  (content,) = [v.metadata.plugin_data.content for e in events for v in e.summary.value]
  return content


def test_tensorboard_has_the_trials_with_what_was_varied_and_the_metric(tmp_path):
  for name in 'ab':
    (tmp_path / name / 'tensorboard').mkdir(parents=True)
  runs = [
    (str(tmp_path / 'a'), {'tau': '1e-3', 'algorithm': 'fed_adam'}),
    (str(tmp_path / 'b'), {'algorithm': 'fed_avg'}),
    (str(tmp_path / 'not begun'), {'tau': 'x'}),
  ]
  for _ in range(2):  # The same files again.
    hparams.write(str(tmp_path), 'validation_accuracy', runs)
  assert len([*tmp_path.rglob('*hparams')]) == 3
  experiment = metadata.parse_experiment_plugin_data(_content(tmp_path))
  assert {info.name for info in experiment.hparam_infos} == {'tau', 'algorithm'}
  assert [info.name.tag for info in experiment.metric_infos] == ['validation/accuracy']
  for name, values in (
    ('a', {'tau': 1e-3, 'algorithm': 'fed_adam'}),
    ('b', {'algorithm': 'fed_avg'}),
  ):
    content = _content(tmp_path / name / 'tensorboard')
    found = metadata.parse_session_start_info_plugin_data(content).hparams
    assert {key: v.number_value or v.string_value for key, v in found.items()} == values
