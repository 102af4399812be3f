"""Trains a task from a program with the settings of the training command."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  import pandas as pd


@dataclasses.dataclass(frozen=True)
class FitResult:
  """The result of `fit`.

  Attributes:
    rows: For each round a mapping from column of metrics.csv to number, without empty cells.
    summary: The content of summary.json: last values, means, costs, and `test` if there are test
      data.
    weights: The trainable weights of the global model (theta) after the last round.
    inference_weights: The weights of theta-bar, which some algorithms evaluate beside theta, such
      as the mean of the client models; None for the others.
    best_weights: The weights of the best evaluation; None without `keep_best`.
    is_complete: Whether all rounds are done, or a target, a budget or `early_stop` ended the run.
    task: The task, a `tff_adaptive_tasks.Task`.
    model: The task's model, a `tff_adaptive.models.Model`.
    state: The server state after the last round.
    output_dir: The run's folder, or None.
  """

  rows: Sequence[Mapping[str, float]] = dataclasses.field(repr=False)
  summary: Mapping[str, Any]
  weights: tuple[np.ndarray, ...] = dataclasses.field(repr=False)
  inference_weights: tuple[np.ndarray, ...] | None = dataclasses.field(repr=False)
  best_weights: tuple[np.ndarray, ...] | None = dataclasses.field(repr=False)
  is_complete: bool
  task: Any
  model: Any = dataclasses.field(repr=False)
  state: Any = dataclasses.field(repr=False)
  output_dir: str | None

  @functools.cached_property
  def metrics(self) -> 'pd.DataFrame':
    """The rows as a pandas data frame, indexed by round; missing values are NaN."""
    import pandas as pd  # Slow to import and needed here only.

    return pd.DataFrame(list(self.rows)).set_index('round', drop=False)


def fit(
  task: Any = None,
  algorithm: str | None = None,
  *,
  output_dir: str | os.PathLike | None = None,
  **settings: Any,
) -> FitResult:
  """Trains a task, with the flags of the training command as keywords.

  Names, defaults, tuned rates and checks are those of the command (scripts/train.py, installed as
  tff-adaptive-train), whose help lists them all. The numbers are equal to the last bit.

      result = tff_adaptive.fit('digits', 'fed_yogi', rounds=50, task_option={'num_clients': 20})
      result.metrics['validation_accuracy'].dropna()

  While it trains, TFF's default context is this project's; the former one is back at the end.

  Args:
    task: The name of a task or 'FILE.py:FUNCTION', as for the command; a `tff_adaptive_tasks.Task`;
      a function `(data_dir, seed, **options)` that returns one; or own data, a mapping from client
      to arrays (x, y), for a logistic or linear regression as `tff_adaptive_tasks.from_arrays`
      makes it. The default is 'digits'. A `Task` whose name is that of a known task gets the rates
      that were tuned for it.
    algorithm: The name of an algorithm, of a chain, or 'FILE.py:NAME'. The default is 'fed_yogi'.
    output_dir: The run's folder, as the command writes it; a run in it is resumed. With None
      nothing is written.
    **settings: The other flags of the command by name, such as rounds=50. Flags that may be
      repeated take a list, and those of options a mapping too, such as task_option={'alpha': 0.3}.
      `quiet=True` shows no progress. None stands for the default.

  If the run ends without a usable model, because all clients diverged or the last validation loss
  is not finite, a RuntimeWarning says so, and the result is returned all the same.

  Raises:
    TypeError: If there is no such flag; the message has those that may be meant.
    ValueError: If a value is not valid, or does not go with the others or with the data.
    NonFiniteWeightsError: If the model diverged.
    RuntimeError: If the run failed after it had begun.
  """
  # The only import upwards: the settings are the command's, and stand beside its flags.
  from tff_adaptive_scripts.cli import fit as command

  folder = None
  if output_dir is not None:
    folder = os.fspath(output_dir)
  # The command's own function, so that numbers and checks cannot differ from the command's.
  run = command.fit(task, algorithm, folder, settings)
  state = run.result.state
  best = run.result.best_weights
  return FitResult(
    rows=run.result.rows,
    summary=run.result.summary,
    weights=_trainable(state.global_model_weights) or (),
    inference_weights=_trainable(getattr(state, 'inference_weights', None)),
    best_weights=None if best is None else tuple(best),
    is_complete=run.result.is_complete,
    task=run.task,
    model=run.model,
    state=state,
    output_dir=folder,
  )


def _trainable(weights: Any) -> tuple[np.ndarray, ...] | None:
  """Returns trainable weights as arrays; None for None, and for (), which is the global model."""
  from tff_adaptive.training import rounds

  arrays = [np.asarray(weight) for weight in rounds.trainable(weights) or ()]
  if not arrays:
    return None
  return tuple(arrays)
