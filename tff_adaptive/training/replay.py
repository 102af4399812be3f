"""Trains one client of a finished round again, to look at what it did."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tree

from tff_adaptive._utils import client_references, private_apis, temporary_folders
from tff_adaptive.runs import config as config_file, metrics as metrics_lib, state_file
from tff_adaptive.training import protocols
from tff_adaptive.training.config import TrainingConfig

if TYPE_CHECKING:
  import pandas as pd

  from tff_adaptive.training import client_losses as client_losses_lib


@dataclasses.dataclass(frozen=True)
class ReplayedClient:
  """What a client did in a round.

  Attributes:
    update: The tensors that it sent to be aggregated: by default theta^{t-1} - theta_i. The server
      replaces those of attackers with the attack `inner_product`.
    weight: Its weight in the mean of the updates; None if it was run eagerly.
    client_state: Its state after the round; () if clients keep none.
    num_examples: The number of its examples.
    is_used: Whether its update counted: it took a step, and its numbers were finite.
    metrics: Its training metrics, sums and counts by name.
    steps: Arrays [K] by name, for its K local steps: `loss`, `gradient_norm`, `weights_norm` and
      `distance`, as in a trace.
    weights: The trainable weights that it received.
  """

  update: Sequence[np.ndarray]
  weight: float | None
  client_state: Any
  num_examples: float
  is_used: bool
  metrics: Any
  steps: Mapping[str, np.ndarray]
  weights: Sequence[np.ndarray]

  @property
  def table(self) -> 'pd.DataFrame':
    """The steps as a data frame, with a row for each."""
    import pandas as pd  # Slow to import and needed here only.

    return pd.DataFrame(dict(self.steps))


def replay_client(
  output_dir: str | None,
  round_number: int,
  client_id: str,
  *,
  process: protocols.Process,
  clients: protocols.ClientData,
  config: TrainingConfig,
  client_losses: 'client_losses_lib.ClientLosses | None' = None,
  settings: Mapping[str, Any] | config_file.Record | None = None,
  eager: bool = False,
) -> ReplayedClient:
  """Trains a client of a finished round of a run again; nothing in the run's folder changes.

  The rounds between the nearest checkpoint before the round, or the beginning, and the round are
  trained again first. In the engine and with the cohort of the run the results are the same bits as
  those of the run. With `eager` they are the same up to rounding.

  Args:
    output_dir: The run's folder; None trains all rounds before this one again.
    round_number: The round, from 1.
    client_id: The client, which took part in the round.
    process, clients, config, client_losses, settings: The arguments with which `train` ran.
    eager: Whether the client's operations run one by one, as Python reaches them: then a
      breakpoint in the code of a correction or a model shows values.

  Raises:
    ValueError: If the client did not take part in the round, the run has not done it, or the
      process or its model cannot be followed.
    StateError: If the checkpoint is damaged or in use.
    ResumeError: If the settings or the data are not those of the run.
  """
  singles = clients_of(process)
  until = _Until(process, round_number)
  with contextlib.ExitStack() as stack:
    folder = None
    more: dict[str, Any] = {}
    if output_dir is not None:
      _check_done(output_dir, round_number)
      _check_same(output_dir, clients, config, settings)
      which = _checkpoint_before(output_dir, round_number)
      if which is not None:
        folder = stack.enter_context(_copy(output_dir))
        run_id = config_file.read(output_dir)['run_id']
        more = {'resume_from': which, 'run_id': run_id, 'settings': settings}
    _train_until(until, clients, config, round_number, folder, client_losses, more)
  given = until.given
  ids = list(clients.client_ids)
  positions = [int(data['client']) for (data,) in given.data]
  if client_id not in ids or ids.index(client_id) not in positions:
    names = ', '.join(str(ids[i]) for i in sorted(positions)[:20])
    raise ValueError(
      f'client {client_id!r} did not take part in round {round_number}, in which there were'
      f' {len(positions)} clients: give one of {names}.'
    )
  return _replayed(singles, given, positions.index(ids.index(client_id)), eager)


def clients_of(process: protocols.Process) -> Any:
  """Returns the `algorithms.single_client.Clients` of a process.

  Raises:
    ValueError: If this package did not build the process, or its clients cannot be followed.
  """
  makers = private_apis.attached(getattr(process, 'next', None), private_apis.SINGLE_CLIENTS)
  if not makers:
    raise ValueError(
      'single clients can be followed in processes of tff_adaptive only: build the process with'
      ' algorithms.build_process, say.'
    )
  return makers[0]()


def begin_with_server_model(process: protocols.Process) -> bool:
  """Returns whether clients begin with the server's model; true if the process does not say it."""
  try:
    clients = clients_of(process)
  except ValueError:
    return True
  return bool(clients.begin_with_server_model)


def rows_of(number: int, client_id: str, steps: Any) -> list[dict[str, Any]]:
  """Returns the rows of a trace, from the `single_client.Steps` of a round."""
  rows = []
  for i, values in enumerate(zip(*steps.columns.values())):
    row = {'round': number, 'step': i + 1, 'client': client_id}
    row.update(zip(steps.columns, map(float, values)))
    rows.append(row)
  return rows


@dataclasses.dataclass(frozen=True)
class _Given:
  """The arguments of a process's round."""

  server_state: Any
  client_states: Sequence[Any] | None
  data: Sequence[Any]


class _Reached(Exception):
  """Ends training before the round that is asked for."""


class _Until:
  """A process that notes what it is given for a round, and ends training there."""

  def __init__(self, process: Any, round_number: int) -> None:
    self._process = process
    self._round_number = round_number
    self.given = _Given(None, None, ())
    self.initialize = process.initialize
    # An attribute of this object, because the loop tells the two kinds of processes by it.
    if isinstance(process, protocols.StatefulProcess):
      self.initial_client_state = process.initial_client_state

  def next(self, server_state: Any, *of_clients: Any) -> Any:
    """Runs a round; see `protocols`."""
    if int(server_state.round_number) + 1 == self._round_number:
      *states, data = of_clients
      client_states = None
      if states:
        client_states = states[0]
      self.given = _Given(server_state, client_states, client_references.resolve(data))
      raise _Reached
    return self._process.next(server_state, *of_clients)


def _check_done(output_dir: str, round_number: int) -> None:
  """Raises ValueError if the run in a folder has not done a round."""
  rows = metrics_lib.read(os.path.join(output_dir, metrics_lib.FILE))
  done = 0
  if rows:
    done = int(rows[-1]['round'])
  if not 1 <= round_number <= done:
    raise ValueError(
      f'round {round_number} cannot be replayed: {output_dir} has done {done} rounds; give a round'
      f' from 1 to {done}.'
    )


def _check_same(
  output_dir: str,
  clients: protocols.ClientData,
  config: TrainingConfig,
  settings: Mapping[str, Any] | config_file.Record | None,
) -> None:
  """Raises ResumeError if the run in a folder has other settings or data.

  Where the run begins anew, nothing else would tell.
  """
  from tff_adaptive.training import loop

  record = settings
  if not isinstance(record, config_file.Record):
    record = config.record(record)
  loop.check_same(output_dir, record, clients)


def _checkpoint_before(output_dir: str, round_number: int) -> str | None:
  """Returns which checkpoint is the last before a round; None if the run has to begin anew."""
  path = state_file.path(output_dir)
  if not os.path.exists(path):
    return None
  with contextlib.closing(state_file.StateFile(path)) as file:
    rounds = list(file.rounds)
  # From the latest back: the nearest one before the round leaves least to train again.
  for which, number in zip(('latest', 'previous'), reversed(rounds)):
    if number < round_number:
      return which
  return None


@contextlib.contextmanager
def _copy(output_dir: str) -> Iterator[str]:
  """Yields a temporary copy of what a run needs to go on."""
  with temporary_folders.folder('tff-adaptive-replay-') as folder:
    # The loop goes on as in a resumed run, which needs its settings and rows, and writes here.
    for name in (config_file.FILE, metrics_lib.FILE):
      shutil.copy(os.path.join(output_dir, name), folder)
    checkpoints = os.path.dirname(state_file.path(output_dir))
    shutil.copytree(checkpoints, os.path.dirname(state_file.path(folder)))
    yield folder


def _train_until(
  until: _Until,
  clients: protocols.ClientData,
  config: TrainingConfig,
  round_number: int,
  folder: str | None,
  client_losses: Any,
  more: Mapping[str, Any],
) -> None:
  """Trains the rounds before a round as the run did, without its evaluations and records."""
  from tff_adaptive.training import loop

  many = round_number + 1
  quiet = dataclasses.replace(
    config,
    # More rounds than are trained, so that none of them is the last.
    rounds=max(config.rounds, many),
    rounds_per_evaluation=many,
    virtual_seconds_per_evaluation=None,
    rounds_per_checkpoint=many,
    target=None,
    stop_at_target=False,
    early_stop=None,
    keep_best=False,
    ledger=False,
    trace_client=None,
    max_megabytes=None,
    max_gradients=None,
    max_virtual_seconds=None,
  )
  with contextlib.suppress(_Reached):
    loop.train(
      until,
      clients,
      lambda weights: {},
      quiet,
      output_dir=folder,
      client_losses=client_losses,
      show_progress=False,
      **more,
    )


def _replayed(singles: Any, given: _Given, index: int, eager: bool) -> ReplayedClient:
  """Trains the client again, in the engine with its cohort, or eagerly."""
  steps = singles.steps(given.server_state, given.client_states, given.data, index, eager)
  trained = steps.trained
  weight = None
  update = trained.update
  client_state = trained.client_state
  is_used = bool(trained.is_used)
  metrics = trained.metrics
  # `steps` trains the client alone; with its cohort in the engine it has the bits of the run.
  if not eager:
    from tff_adaptive.client import attacks  # It imports TensorFlow.

    output = singles.results(given.server_state, given.client_states, given.data)[index]
    update = output.result.update
    weight = attacks.unmarked(float(output.result.update_weight))
    client_state = output.client_state
    is_used = bool(output.totals.used)
    metrics = output.metrics
  return ReplayedClient(
    update=tuple(np.asarray(leaf) for leaf in tree.flatten(update)),
    weight=weight,
    client_state=client_state,
    num_examples=float(trained.num_examples),
    is_used=is_used,
    metrics=metrics,
    steps=steps.columns,
    weights=steps.weights,
  )
