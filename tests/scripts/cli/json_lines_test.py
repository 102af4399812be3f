"""--json: a line of JSON for each round."""

import json

import numpy as np

from scripts.cli import json_lines


def test_a_row_is_one_object_and_what_is_not_finite_is_null(capsys):
  callback = json_lines.JsonLines()
  callback.round_end({'round': 0, 'validation_loss': np.float32(0.5), 'h_norm': np.inf})
  callback.round_end({'round': 1.0, 'validation_loss': np.nan, 'clients': 3})
  lines = capsys.readouterr().out.splitlines()
  assert [json.loads(line) for line in lines] == [
    {'round': 0, 'validation_loss': 0.5, 'h_norm': None},
    {'round': 1, 'validation_loss': None, 'clients': 3},
  ]
