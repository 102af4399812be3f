"""How quiet the machine is while it measures: load, stolen time, spread of the repetitions."""

import os
import pathlib
import platform
import re
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import psutil

BUSY_LIMIT = 0.1  # Share of the processors that others use before anything is measured.
STEAL_LIMIT = 0.02  # Share of the processors' time that the host gave to others.
SPREAD_LIMIT = 0.25  # Distance between the quartiles of the repetitions, as a share of the median.


class State(NamedTuple):
  """The machine at one moment."""

  load: float  # Mean number of processes that ran or wanted to over the last minute.
  busy: float  # Share of the processors in use over the second before, 0 to 1.
  # Seconds that the host kept from this machine's processors; 0.0 where nobody counts them.
  stolen: float
  total: float  # Seconds of all processors since then, idle ones included.


def state_now() -> State:
  """The machine's state; takes a second."""
  busy = psutil.cpu_percent(interval=1.0) / 100
  times = psutil.cpu_times()
  return State(psutil.getloadavg()[0], busy, getattr(times, 'steal', 0.0), sum(times))


def spread(seconds: Iterable[float]) -> float:
  """The distance between the quartiles over the median; 0.0 for fewer than four repetitions."""
  seconds = list(seconds)
  if len(seconds) < 4:
    return 0.0
  low, _, high = statistics.quantiles(seconds, n=4)
  return (high - low) / statistics.median(seconds)


def between(before: State, after: State, spreads: Mapping[str, float]) -> dict[str, Any]:
  """What the host did during a measurement.

  Returns:
    `load_before` and `busy_before` as in `State`, `stolen`, the share of the processors' time that
    the host kept, and `not_quiet`: what speaks against trusting the figures, a line each.
  """
  stolen = (after.stolen - before.stolen) / max(after.total - before.total, 1e-9)
  doubts = []
  if before.busy > BUSY_LIMIT:
    doubts.append(f'other processes used {before.busy:.0%} of the processors before')
  if stolen > STEAL_LIMIT:
    doubts.append(f'the host kept {stolen:.0%} of the processors from this machine')
  wide = [f'{name} {share:.0%}' for name, share in spreads.items() if share > SPREAD_LIMIT]
  if wide:
    doubts.append(f'repetitions differ (quartiles apart, of the median): {", ".join(wide)}')
  found = {'load_before': before.load, 'busy_before': before.busy, 'stolen': stolen}
  return {**found, 'not_quiet': doubts}


def describe() -> dict[str, Any]:
  """The machine: processor, cores this process may use, Python, date."""
  names = re.findall(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text('utf-8'))
  return {
    'processor': names[0] if names else platform.machine(),
    'cores': len(os.sched_getaffinity(0)),
    'python': platform.python_version(),
    'date': time.strftime('%Y-%m-%d'),
  }
