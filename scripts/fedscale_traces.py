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

import contextlib
import dataclasses
import itertools
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

import numpy as np
import pandas as pd

from tff_adaptive import population
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
  clients, tables = task.train.client_ids, {}
  for name, found in devices.items():
    with _about(files[name]):
      if name == 'profiles':
        tables[name] = profiles(clients, found, _FLAGS.batch_size)
      else:
        tables[name] = availability(clients, found)
  command.check_output('output', _FLAGS.output)
  for name, table in tables.items():
    path = f'{_FLAGS.output}.{name}.csv'
    atomic_files.write_text(path, table.to_csv(index=False))
    command.show(f'{path}: {len(clients):,} clients, {len(devices[name]):,} devices\n')
  return command.DONE


def profiles(clients: Sequence[str], devices: Mapping[Any, Any], batch_size: int) -> pd.DataFrame:
  """Returns the rows of a --client_profiles file, from FedScale's device capacities."""
  known = pd.DataFrame([*devices.values()])
  used = known.iloc[np.arange(len(clients)) % len(known)].reset_index()
  bandwidth = used['communication'] * _BYTES_OF_KILOBIT / 1e6
  seconds = batch_size * _STEP_OVER_INFERENCE * used['computation']
  columns = {'seconds_per_step': seconds, 'downlink': bandwidth, 'uplink': bandwidth}
  population.Speed(profiles={n: dict(zip(clients, v)) for n, v in columns.items()})  # Checks them.
  return pd.DataFrame({'client': clients, **columns})


def availability(clients: Sequence[str], devices: Mapping[Any, Any]) -> pd.DataFrame:
  """Returns the rows of an --availability file in seconds, from FedScale's activity traces."""
  used = [*zip(clients, itertools.cycle(devices.values()))]
  end = max(device['finish_time'] for _, device in used)
  found = {
    client: [
      (begin + again, min(until + again, end))
      for again in np.arange(0, end, device['finish_time']).tolist()
      for begin, until in _intervals(device)
      if begin + again < min(until + again, end)
    ]
    for client, device in used
  }
  population.Trace({client: times for client, times in found.items() if times})  # Checks them.
  rows = [(client, *times) for client, own in found.items() for times in own]
  if not rows:
    raise ValueError('no device is ever active')
  return pd.DataFrame(rows, columns=list(population_files.TRACE_COLUMNS))


def _intervals(device: Mapping[str, Any]) -> list[tuple[float, float]]:
  """Returns the intervals in which a device is active, up to the length of its trace."""
  found = []
  for begin, until in zip(device['active'], device['inactive'], strict=True):
    if begin <= until:
      found.append((begin, until))
    else:  # Active when its trace begins anew.
      found += [(0, until), (begin, device['finish_time'])]
  return sorted(found)


class _Plain(pickle.Unpickler):
  """Reads pickles of dictionaries, lists, numbers and text, but nothing that runs code."""

  def find_class(self, module_name: str, global_name: str) -> Any:
    raise pickle.UnpicklingError(f'it names {module_name}.{global_name}, which is no plain data')


def _devices(path: str) -> dict[Any, Any]:
  """Returns the devices in one of FedScale's files."""
  with _about(path), open(command.expanded(path), 'rb') as file:
    found = _Plain(file).load()
    if not isinstance(found, dict) or not found:
      raise ValueError('it holds no dictionary of devices')
    return found


@contextlib.contextmanager
def _about(path: Any) -> Iterator[None]:
  """Turns any error of its block into a ValueError of one line that names the file."""
  try:
    yield
  except Exception as error:  # A damaged pickle raises anything.
    raise ValueError(f"{path} is no file of FedScale's ({error!r:.200}).") from None


if __name__ == '__main__':
  sys.exit(main())
