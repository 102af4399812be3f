"""Numbers of small runs, short enough to be committed: a change of code must not change them.

    python -m tests.helpers.reference FOLDER... > tests/integration/reference.json

writes those of finished runs, by the name of their folder.
"""

import csv
import json
import os
import sys
from typing import Any

import numpy as np

import tff_adaptive

# Columns that depend on the machine.
_NOT_COMPARED = ('seconds_', 'round')
_PROJECTIONS = 8


def of_run(folder: str) -> dict[str, Any]:
  """What a finished run came to.

  Args:
    folder: The run's folder.

  Returns:
    'weights': for each array its norm and its products with fixed random arrays of that norm's
    scale; 'metrics': the last row of metrics.csv.
  """
  weights = []
  for array in tff_adaptive.load_run(folder).weights:
    values = np.asarray(array, np.float64).ravel()
    directions = np.random.RandomState(0).standard_normal((_PROJECTIONS, values.size))
    weights.append([float(np.linalg.norm(values)), *(directions @ values).tolist()])
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    last = list(csv.DictReader(file))[-1]
  metrics = {k: float(v) for k, v in last.items() if v and not k.startswith(_NOT_COMPARED)}
  return {'weights': weights, 'metrics': metrics}


if __name__ == '__main__':
  json.dump(
    {os.path.basename(os.path.normpath(f)): of_run(f) for f in sys.argv[1:]}, sys.stdout, indent=1
  )
