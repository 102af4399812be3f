"""TensorBoard's HParams of a search: what each run varied, next to its curves.

A file in the run's tensorboard/ names its hyperparameters, and one in the sweep's folder what is
varied and compared. They are written anew, under the same names, whenever the sweep ends.
"""

import io
import os
import time
from collections.abc import Mapping, Sequence

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.summary.writer import record_writer

from tff_adaptive._utils import atomic_files
from tff_adaptive.training import tensorboard_log

_FILE = 'events.out.tfevents.0.hparams'
_STATUS = {'done': api_pb2.STATUS_SUCCESS, 'running': api_pb2.STATUS_RUNNING}


def write(folder: str, metric: str, runs: Sequence[tuple[str, Mapping[str, str], str]]) -> None:
  """Writes the files of a search.

  Args:
    folder: The sweep's.
    metric: The column of metrics.csv by which trials are compared.
    runs: Folder, what is varied and state of each run; those not begun are left out.

  Raises:
    OSError: If one cannot be written.
  """
  begun = [run for run in runs if os.path.isdir(_events(run[0]))]
  varied = dict.fromkeys(name for _, point, _ in begun for name in point)
  is_number = {n: all(_is_number(point.get(n, '0')) for _, point, _ in begun) for n in varied}
  kinds = {True: api_pb2.DATA_TYPE_FLOAT64, False: api_pb2.DATA_TYPE_STRING}
  experiment = api_pb2.Experiment(
    hparam_infos=[api_pb2.HParamInfo(name=n, type=kinds[is_number[n]]) for n in varied],
    metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tensorboard_log.tag(metric)))],
  )
  data = plugin_data_pb2.HParamsPluginData(experiment=experiment)
  _write(folder, [(metadata.EXPERIMENT_TAG, data)])
  for where, point, state in begun:
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, text in point.items():
      if is_number[name]:
        start.hparams[name].number_value = float(text)
      else:
        start.hparams[name].string_value = text
    end = plugin_data_pb2.SessionEndInfo(
      status=_STATUS.get(state, api_pb2.STATUS_FAILURE), end_time_secs=time.time()
    )
    of = plugin_data_pb2.HParamsPluginData
    _write(
      _events(where),
      [
        (metadata.SESSION_START_INFO_TAG, of(session_start_info=start)),
        (metadata.SESSION_END_INFO_TAG, of(session_end_info=end)),
      ],
    )


def _events(folder: str) -> str:
  return os.path.join(folder, 'tensorboard')


def _write(folder: str, entries: Sequence[tuple[str, plugin_data_pb2.HParamsPluginData]]) -> None:
  file = io.BytesIO()
  writer = record_writer.RecordWriter(file)
  writer.write(event_pb2.Event(file_version='brain.Event:2').SerializeToString())
  for tag, data in entries:
    value = summary_pb2.Summary.Value(
      tag=tag, metadata=metadata.create_summary_metadata(data), tensor=metadata.NULL_TENSOR
    )
    event = event_pb2.Event(wall_time=time.time(), summary=summary_pb2.Summary(value=[value]))
    writer.write(event.SerializeToString())
  path = os.path.join(folder, _FILE)
  with atomic_files.atomic_path(path) as temporary, open(temporary, 'wb') as out:
    out.write(file.getvalue())


def _is_number(text: str) -> bool:
  try:
    float(text)
  except ValueError:
    return False
  return True
