"""The ledger of a run: a Parquet file with a row for each client and round, written in parts.

A part, ledger/rounds_FIRST_LAST.parquet, has the rounds since the checkpoint before. It is written
before the checkpoint of its last round, so that a resumed run drops the parts after its checkpoint.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs.errors import RunFileError, reading, saving

if TYPE_CHECKING:
  import pandas as pd

FOLDER = 'ledger'
# Columns and their types. A value that is not known is empty.
COLUMNS: Mapping[str, str] = {
  'round': 'int64',
  'client': 'str',
  'outcome': 'str',
  'examples': 'Int64',
  'steps': 'Int64',
  'weight': 'float64',
  'train_loss': 'float64',
  'loss_before': 'float64',
  'loss_after': 'float64',
  'gradient_norm': 'float64',
  'update_norm': 'float64',
  'cosine_mean': 'float64',
  'cosine_h': 'float64',
  'staleness': 'Int64',
  'bytes_down': 'Int64',
  'bytes_up': 'Int64',
  'virtual_seconds': 'float64',
  'is_attacker': 'bool',
}
# The folder of the local steps of one client, in the same form, and its columns.
TRACE = 'trace'
TRACE_COLUMNS: Mapping[str, str] = {
  'round': 'int64',
  'step': 'int64',
  'client': 'str',
  'loss': 'float64',
  'gradient_norm': 'float64',
  'weights_norm': 'float64',
  'distance': 'float64',
}
_COLUMNS_IN: Mapping[str, Mapping[str, str]] = {FOLDER: COLUMNS, TRACE: TRACE_COLUMNS}
# Their types in the files, as Arrow names them.
_TYPES: Mapping[str, str] = {
  'int64': 'int64',
  'Int64': 'int64',
  'float64': 'float64',
  'str': 'string',
  'bool': 'bool',
}
_PART = re.compile(r'rounds_(\d+)_(\d+)\.parquet')


class Ledger:
  """Collects the rows of a run's rounds, and writes them at its checkpoints."""

  def __init__(self, output_dir: str, round_number: int, folder: str = FOLDER) -> None:
    """Opens the ledger of a run that has done `round_number` rounds; drops parts after them.

    `folder` is `FOLDER` or `TRACE`. Raises SaveError if it cannot be written.
    """
    self._columns = _COLUMNS_IN[folder]
    self._folder = os.path.join(output_dir, folder)
    self._rows: list[Mapping[str, Any]] = []
    with saving(self._folder):
      os.makedirs(self._folder, exist_ok=True)
      for last, path in _parts(self._folder):
        if last > round_number:
          os.unlink(path)

  def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds the rows of a round, with values by column; see `COLUMNS` or `TRACE_COLUMNS`."""
    self._rows.extend(rows)

  def save(self) -> None:
    """Writes the rows since the last call. Raises SaveError if this fails."""
    if not self._rows:
      return
    # Slow to import and needed here only. Through a data frame it would take four times as long.
    import pyarrow as pa
    from pyarrow import parquet

    columns = {}
    for name, kind in self._columns.items():
      values = [row.get(name) for row in self._rows]
      # Unlike Arrow, the ledger makes no difference between NaN and a value that is not known.
      columns[name] = pa.array(values, _TYPES[kind], from_pandas=True)
    table = pa.table(columns)
    first = self._rows[0]['round']
    last = self._rows[-1]['round']
    path = os.path.join(self._folder, f'rounds_{first:06d}_{last:06d}.parquet')
    with saving(path), atomic_files.atomic_path(path) as temporary:
      parquet.write_table(table, temporary)
    self._rows.clear()


def read(output_dir: str, folder: str = FOLDER) -> 'pd.DataFrame':
  """Returns the ledger of the run in a folder, a row for each client and round.

  With `folder` `TRACE` it is the trace of one client, a row for each of its local steps.

  Raises:
    RunFileError: If the run has none, or it cannot be read.
  """
  path_of_parts = os.path.join(output_dir, folder)
  parts = []
  if os.path.isdir(path_of_parts):
    parts = _parts(path_of_parts)
  if not parts and folder == FOLDER:
    raise RunFileError(f'{output_dir} has no ledger: train with ledger, which writes one.')
  if not parts:
    raise RunFileError(f'{output_dir} has no trace of a client: train with trace_client.')
  import pandas as pd

  tables = []
  for _, path in parts:
    with reading(path):
      tables.append(pd.read_parquet(path))
  # A part alone shows no type where all its values are unknown.
  return pd.concat(tables, ignore_index=True).astype(dict(_COLUMNS_IN[folder]))


def _parts(folder: str) -> list[tuple[int, str]]:
  """Returns the last round and the path of each part, in the order of the rounds."""
  parts = []
  for name in sorted(os.listdir(folder)):
    match = _PART.fullmatch(name)
    if match is not None:
      parts.append((int(match[2]), os.path.join(folder, name)))
  return parts
