"""HParams, as TensorBoard's own plugin reads them."""

import types

import pytest

from scripts.cli import hparams
from tff_adaptive.training import callbacks, tensorboard_log

backend_context = pytest.importorskip('tensorboard.plugins.hparams.backend_context')


def _run(folder, accuracy):
  log = tensorboard_log.EventLog(str(folder / 'tensorboard'))
  log.begin(callbacks.RunInfo(str(folder), 0, 2, print))
  for t in range(3):
    log.round_end({'round': t, 'validation_accuracy': accuracy * t})
  log.close()


def _groups(folder):
  """What the plugin lists: hyperparameters, status and metrics of each session group."""
  from tensorboard import context as tensorboard_context
  from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
  from tensorboard.plugins import base_plugin
  from tensorboard.plugins.hparams import api_pb2, get_experiment, list_session_groups

  multiplexer = plugin_event_multiplexer.EventMultiplexer()
  multiplexer.AddRunsFromDirectory(str(folder)).Reload()
  provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
  flags = types.SimpleNamespace(max_reload_threads=1)
  backend = backend_context.Context(base_plugin.TBContext(data_provider=provider, flags=flags))
  request = tensorboard_context.RequestContext()
  experiment = get_experiment.Handler(request, backend, '').run()
  columns = [api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos]
  columns += [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos]
  asked = api_pb2.ListSessionGroupsRequest(
    start_index=0,
    slice_size=99,
    allowed_statuses=[api_pb2.STATUS_UNKNOWN],
    col_params=columns,
  )
  groups = list_session_groups.Handler(request, backend, '', asked).run().session_groups
  return experiment, groups


def test_tensorboard_lists_the_trials_with_what_was_varied_and_the_metric(tmp_path):
  _run(tmp_path / 'a', 0.25)
  _run(tmp_path / 'b', 0.5)
  runs = [
    (str(tmp_path / 'a'), {'tau': '1e-3', 'algorithm': 'fed_adam'}),
    (str(tmp_path / 'b'), {'algorithm': 'fed_avg'}),
    (str(tmp_path / 'not begun'), {'tau': 'x'}),
  ]
  for _ in range(2):  # The same files again.
    hparams.write(str(tmp_path), 'validation_accuracy', runs)
  assert len([*tmp_path.rglob('*hparams')]) == 3
  experiment, groups = _groups(tmp_path)
  assert {info.name for info in experiment.hparam_infos} == {'tau', 'algorithm'}
  assert [info.name.tag for info in experiment.metric_infos] == ['validation/accuracy']
  found = {}
  for group in groups:
    (metric,) = group.metric_values
    (session,) = group.sessions
    tau = group.hparams['tau'].number_value
    found[session.name] = group.hparams['algorithm'].string_value, tau, metric.value
  assert found == {'a/tensorboard': ('fed_adam', 1e-3, 0.5), 'b/tensorboard': ('fed_avg', 0.0, 1.0)}
