"""Writes TensorBoard's HParams of a search: what each run varied, beside its curves.

A file in the run's tensorboard/ has its hyperparameters, and one in the sweep's folder says what is
varied and compared. They are rewritten under the same names whenever the sweep ends.
"""

import os
import time
from collections.abc import Mapping, Sequence

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import summary_v2
from tensorboard.summary.writer import record_writer

from tff_adaptive._utils import atomic_files
from tff_adaptive.training import tensorboard_log

_FILE = 'events.out.tfevents.0.hparams'


def write(folder: str, metric: str, runs: Sequence[tuple[str, Mapping[str, str]]]) -> None:
  """Writes the files of a search.

  Args:
    folder: The sweep's folder.
    metric: The column of metrics.csv by which trials are compared.
    runs: The folder of each run, and what it varies. Runs that have not begun are left out.

  Raises:
    OSError: If a file cannot be written.
  """
  events = [(os.path.join(where, 'tensorboard'), point) for where, point in runs]
  begun = [run for run in events if os.path.isdir(run[0])]
  varied = {n: _values([p[n] for _, p in begun if n in p]) for _, p in begun for n in p}
  config = summary_v2.hparams_config_pb(
    [summary_v2.HParam(n, summary_v2.Discrete([*v.values()])) for n, v in varied.items()],
    [summary_v2.Metric(tensorboard_log.tag(metric))],
  )
  _write(folder, config)
  for where, point in begun:
    _write(where, summary_v2.hparams_pb({n: varied[n][text] for n, text in point.items()}))


def _write(folder: str, summary: summary_pb2.Summary) -> None:
  path = os.path.join(folder, _FILE)
  with atomic_files.atomic_path(path) as temporary, open(temporary, 'wb') as file:
    writer = record_writer.RecordWriter(file)
    writer.write(event_pb2.Event(file_version='brain.Event:2').SerializeToString())
    writer.write(event_pb2.Event(wall_time=time.time(), summary=summary).SerializeToString())


def _values(texts: Sequence[str]) -> Mapping[str, float | str]:
  """Returns text -> value of a flag; values are numbers if all texts are."""
  try:
    return {text: float(text) for text in texts}
  except ValueError:
    return {text: text for text in texts}
