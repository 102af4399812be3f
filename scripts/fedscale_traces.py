"""Converts FedScale's device traces to the CSV files that train.py takes.

usage: python scripts/fedscale_traces.py --task=TASK --output=OUTPUT [--capacity=FILE]
         [--behaviour=FILE] [--flag=value ...]

FedScale publishes two files of Python pickles: client_device_capacity (milliseconds to infer one
example, and bandwidth in kilobits a second) and client_behave_trace (when a device is active). This
command makes OUTPUT.profiles.csv from the first and OUTPUT.availability.csv from the second. The
clients of the task, in the order of their ids, get the devices in the order of the file. If there
are more clients than devices, the devices are used again.

  python scripts/fedscale_traces.py --task=emnist_cr --data_dir=DIR --output=phones \\
    --capacity=client_device_capacity --behaviour=client_behave_trace
  python scripts/train.py --task=emnist_cr --data_dir=DIR \\
    --client_profiles=phones.profiles.csv --availability=phones.availability.csv

A step takes three times a batch's inference, FedScale's allowance for the backward pass. The
traces of devices have different lengths. Each is repeated up to the end of the longest one, after
which train.py repeats all of them together.
"""

import dataclasses
import itertools
import math
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

import numpy as np
import pandas as pd

from tff_adaptive._utils import atomic_files
from tff_adaptive.population import files as population_files

from .cli import command, fields, flags

# Seconds of a training step for a millisecond of inference: FedScale's `augmentation_factor` is 3.
_STEP_OVER_INFERENCE = 3e-3
_BYTES_OF_KILOBIT = 1024 / 8


@dataclasses.dataclass(frozen=True)
class _Traces(fields.Group):
  """The flags of this command; it has train.py's flags of the task too."""

  TITLE = 'Traces'

  output: str = fields.flag('Write OUTPUT.profiles.csv and OUTPUT.availability.csv.', '')
  capacity: str | None = fields.flag("FedScale's client_device_capacity.")
  behaviour: str | None = fields.flag("FedScale's client_behave_trace.")
  batch_size: int = fields.count('Examples in a step, as you give to train.py.', 20)


_FLAGS = flags.define_with_task(_Traces)


@command.entry('fedscale_traces.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  task_options = flags.check_with_task(_FLAGS, _Traces)
  files = {'profiles': _FLAGS.capacity, 'availability': _FLAGS.behaviour}
  if not _FLAGS.output or not any(files.values()):
    raise ValueError('give --output, and --capacity, --behaviour or both.')
  devices = {name: _devices(path) for name, path in files.items() if path}
  task = flags.load_task(_FLAGS, task_options)
  clients = task.train.client_ids
  tables = {}
  if _FLAGS.capacity:
    tables['profiles'] = profiles(clients, devices['profiles'], _FLAGS.batch_size)
  if _FLAGS.behaviour:
    tables['availability'] = availability(clients, devices['availability'])
  command.check_output('output', _FLAGS.output)
  for name, table in tables.items():
    path = f'{_FLAGS.output}.{name}.csv'
    atomic_files.write_text(path, table.to_csv(index=False))
    command.show(f'{path}: {len(clients):,} clients, {len(devices[name]):,} devices\n')
  return command.DONE


def profiles(clients: Sequence[str], devices: Mapping[Any, Any], batch_size: int) -> pd.DataFrame:
  """Returns the rows of a --client_profiles file, from FedScale's device capacities.

  Raises:
    ValueError: If a device lacks one of the numbers.
  """
  rows = []
  for client, (key, device) in zip(clients, itertools.cycle(devices.items())):
    milliseconds, kilobits = (_number(key, device, n) for n in ('computation', 'communication'))
    bandwidth = kilobits * _BYTES_OF_KILOBIT / 1e6
    rows.append((client, batch_size * _STEP_OVER_INFERENCE * milliseconds, bandwidth, bandwidth))
  return pd.DataFrame(rows, columns=['client', 'seconds_per_step', 'downlink', 'uplink'])


def availability(clients: Sequence[str], devices: Mapping[Any, Any]) -> pd.DataFrame:
  """Returns the rows of an --availability file in seconds, from FedScale's activity traces.

  Raises:
    ValueError: If a device lacks its times.
  """
  used = [(c, *_intervals(*d)) for c, d in zip(clients, itertools.cycle(devices.items()))]
  end = max(length for *_, length in used)
  rows = [
    (client, begin + again, min(until + again, end))
    for client, intervals, length in used
    for again in np.arange(0, end, length).tolist()
    for begin, until in intervals
    if begin + again < min(until + again, end)
  ]
  if not rows:
    raise ValueError('no device is ever active.')
  return pd.DataFrame(rows, columns=list(population_files.TRACE_COLUMNS))


def _intervals(key: Any, device: Any) -> tuple[list[tuple[float, float]], float]:
  """Returns the intervals in which a device is active, and the length of its trace."""
  length = _number(key, device, 'finish_time')
  times = [device.get(name) for name in ('active', 'inactive')]
  if any(not isinstance(t, list | tuple) for t in times) or len({len(t) for t in times}) != 1:
    raise ValueError(f"device {key!r} has no lists 'active' and 'inactive' of one length.")
  if not all(isinstance(t, int | float) and 0 <= t < math.inf for t in itertools.chain(*times)):
    raise ValueError(f'device {key!r}: active and inactive must be numbers, at least 0.')
  found = []
  for begin, until in zip(*times):
    if begin <= until:
      found.append((begin, until))
    else:  # Active when its trace begins anew.
      found += [(0, until), (begin, length)]
  return sorted(found), length


def _number(key: Any, device: Any, name: str) -> float:
  value = device.get(name) if isinstance(device, Mapping) else None
  if not isinstance(value, int | float) or not 0 < value < math.inf:
    raise ValueError(f'device {key!r}: {name} is {value!r:.50}; it must be a number above 0.')
  return value


class _Plain(pickle.Unpickler):
  """Reads pickles of dictionaries, lists, numbers and text, but nothing that runs code."""

  def find_class(self, module_name: str, global_name: str) -> Any:
    raise pickle.UnpicklingError(f'it names {module_name}.{global_name}, which is no plain data')


def _devices(path: str) -> dict[Any, Any]:
  """Returns the devices in one of FedScale's files; ValueError if it has another form."""
  try:
    with open(command.expanded(path), 'rb') as file:
      found = _Plain(file).load()
  except OSError as error:
    raise ValueError(f'{path} cannot be read ({error.strerror}).') from None
  except Exception as error:  # A damaged pickle raises anything.
    raise ValueError(f"{path} is no file of FedScale's ({error}).") from None
  if not isinstance(found, dict) or not found:
    raise ValueError(f"{path} is no file of FedScale's: it holds no dictionary of devices.")
  return found


if __name__ == '__main__':
  sys.exit(main())
