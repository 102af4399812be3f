"""The machine that figures are measured on."""

import os
import pathlib
import platform
import re
import time


def describe() -> dict[str, object]:
  """The processor, the cores that this process may use, Python and the date."""
  name = re.search(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text('utf-8'))
  return {
    'processor': name[1] if name else platform.machine(),
    'cores': len(os.sched_getaffinity(0)),
    'python': platform.python_version(),
    'date': time.strftime('%Y-%m-%d'),
  }
